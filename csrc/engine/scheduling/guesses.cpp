// Guessed tokens in the scheduler: cells for a step, and what is left of them.
#include "engine/scheduling/scheduler.hpp"

#include <algorithm>
#include <new>

namespace pyg {

void Scheduler::add_guesses(Step & step, Task & task, const std::vector<int32_t> & guesses) {
    const uint32_t n_wanted = std::min({static_cast<uint32_t>(guesses.size()), limits_.n_batch - step.n_tokens,
                                        cells_.n_per_sequence() - task.n_tokens()});
    evict_until_free(n_wanted);
    const auto n = static_cast<std::ptrdiff_t>(std::min(n_wanted, cells_.n_free()));
    try {
        task.guesses.assign(guesses.begin(), guesses.begin() + n);
        cells_.allocate(task.seq_id, static_cast<uint32_t>(n));
    } catch (const std::bad_alloc &) {  // the step goes on without them
        task.guesses.clear();
        cells_.truncate(task.seq_id, task.n_tokens());
    }
    step.n_tokens += static_cast<uint32_t>(task.guesses.size());
}

uint32_t Scheduler::keep_right_guesses(const Slice & slice) {
    Task & task = *slice.task;
    if (task.guesses.empty() || !task.is_running()) {
        task.guesses.clear();
        return 0;
    }
    const auto     sampled = task.tokens.begin() + slice.first + slice.n;
    const auto     wrong   = std::mismatch(task.guesses.begin(), task.guesses.end(), sampled, task.tokens.end()).first;
    const auto     n_kept  = static_cast<uint32_t>(wrong - task.guesses.begin());
    const uint32_t n       = slice.first + slice.n + n_kept;
    const bool     is_all  = wrong == task.guesses.end();
    task.guesses.clear();
    task.n_past = n;
    cells_.truncate(task.seq_id, n);
    if (is_all) {
        return n_kept;
    }
    if (cache_.can_truncate_to(task.seq_id, n)) {
        cache_.truncate(task.seq_id, n);
    } else {
        preempt(slice.task);
    }
    return n_kept;
}

}  // namespace pyg
