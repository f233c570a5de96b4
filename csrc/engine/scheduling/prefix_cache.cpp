// The prefix cache of the scheduler: cached prefixes of new tasks, and checkpoints of KV caches that cannot be rewound.
#include "engine/scheduling/scheduler.hpp"

#include <algorithm>
#include <new>

namespace pyg {

namespace {

// Fewest common tokens for which a task waits until another task has prefilled them.
constexpr uint32_t MIN_SHARED_PREFIX = 32;

uint32_t common_prefix(const std::vector<int32_t> & a, uint32_t n_a, const std::vector<int32_t> & b, uint32_t n_b) {
    const auto n = static_cast<std::ptrdiff_t>(std::min(n_a, n_b));
    return static_cast<uint32_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

}  // namespace

// Return the longest cached prefix of a task's tokens. The last token is always decoded again for its logits.
Scheduler::Prefix Scheduler::longest_cached_prefix(const Task & task) const {
    Prefix best;
    if (!limits_.prefix_cache || task.needs_all_logits) {
        return best;
    }
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        const Slot &   slot     = slots_[seq_id];
        const auto &   tokens   = slot.task ? slot.task->tokens : slot.tokens;
        const uint32_t n_cached = slot.task ? slot.task->n_past : static_cast<uint32_t>(tokens.size());
        const uint32_t n        = common_prefix(tokens, n_cached, task.tokens, task.n_tokens() - 1);
        const bool     usable   = !slot.task || cache_.can_share_cells();
        if (n > best.n && usable && slot.cache_salt == task.cache_salt) {
            const Prefix found = usable_prefix(seq_id, n);
            best               = found.n > best.n ? found : best;
        }
    }
    return best;
}

// Return the longest prefix of the first `n` tokens of a slot to which it can be truncated.
Scheduler::Prefix Scheduler::usable_prefix(int32_t seq_id, uint32_t n) const {
    if (cache_.can_truncate_to(seq_id, n)) {
        return {seq_id, n};
    }
    const Checkpoint * checkpoint = checkpoints_.longest(seq_id, n);
    return checkpoint ? Prefix{seq_id, checkpoint->n, checkpoint} : Prefix{};
}

// Truncate a cached slot to a prefix. Return false if its checkpoint cannot be restored: the slot is evicted then.
bool Scheduler::rewind(const Prefix & prefix) {
    if (prefix.checkpoint) {
        if (!cache_.restore(prefix.seq_id, prefix.n, prefix.checkpoint->state)) {
            evict(prefix.seq_id);
            return false;
        }
        checkpoints_.used(prefix.seq_id, prefix.n);
    }
    truncate(prefix.seq_id, prefix.n);
    return true;
}

// Return how many of a task's tokens may be prefilled before its next checkpoint.
uint32_t Scheduler::n_to_checkpoint(const Task & task) const {
    const auto next = std::upper_bound(task.checkpoint_at.begin(), task.checkpoint_at.end(), task.n_past);
    const bool none = !checkpoints_.enabled() || next == task.checkpoint_at.end();
    return none ? task.n_pending() : std::min(task.n_pending(), *next - task.n_past);
}

void Scheduler::save_checkpoint(const Task & task) {
    if (!checkpoints_.enabled() || !task.is_running() ||
        !std::binary_search(task.checkpoint_at.begin(), task.checkpoint_at.end(), task.n_past)) {
        return;
    }
    try {
        checkpoints_.add(task.seq_id, task.n_past, cache_.save(task.seq_id));
    } catch (const std::bad_alloc &) {  // the task goes on without it
    }
}

// Return true if an older task is prefilling a prefix clearly longer than `n` tokens. Only older tasks count, so that
// waiting ends.
bool Scheduler::will_be_cached_soon(const Task & task, uint32_t n) const {
    if (!limits_.prefix_cache || task.needs_all_logits || !cache_.can_share_cells()) {
        return false;
    }
    return std::any_of(running_.begin(), running_.end(), [&](const auto & other) {
        const uint32_t common = common_prefix(other->tokens, other->n_tokens(), task.tokens, task.n_tokens() - 1);
        return other->cache_salt == task.cache_salt && other->arrival < task.arrival && other->n_past < common &&
               common >= n + MIN_SHARED_PREFIX;
    });
}

}  // namespace pyg
