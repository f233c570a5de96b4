#include "engine/scheduling/scheduler.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace pyg {

namespace {

// A task is admitted while others run only if this many cells stay free: otherwise it might be preempted soon after its
// prefill.
constexpr uint32_t HEADROOM = 32;

// Most waiting tasks skipped, because their prefix is being prefilled, to find one that can be admitted.
constexpr uint32_t MAX_SKIPPED = 64;

// Tokens to prefill from which on a prompt is long.
constexpr uint32_t LONG_PROMPT = 1024;

bool arrived_before(const std::shared_ptr<Task> & a, const std::shared_ptr<Task> & b) {
    return a->arrival < b->arrival;
}

// Insert into a queue sorted by arrival.
template <class Row>
void insert(Row & row, const std::shared_ptr<Task> & task) {
    row.insert(std::upper_bound(row.begin(), row.end(), task, arrived_before), task);
}

template <class Row>
bool remove(Row & row, const Task & task) {
    const auto found = std::find_if(row.begin(), row.end(), [&](const auto & each) { return each.get() == &task; });
    if (found == row.end()) {
        return false;
    }
    row.erase(found);
    return true;
}

// Return false if the allocation fails.
bool try_copy(const std::vector<int32_t> & from, std::vector<int32_t> & to) {
    try {
        to = from;
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

}  // namespace

Scheduler::Scheduler(const Limits & limits, KvCache & cache, SnapshotStore * store)
    : limits_(limits), cache_(cache), store_(store), cells_(limits.n_cells, limits.n_seq), checkpoints_(limits.n_seq),
      slots_(static_cast<size_t>(limits.n_seq)) {
    running_.reserve(slots_.size());
}

void Scheduler::add(std::shared_ptr<Task> task) {
    task->arrival = n_arrived_++;
    waiting_.push_back(std::move(task));
}

Step Scheduler::next(const PrefillBudget & budget, uint64_t n_admissible) {
    allocate_decode_cells();
    admit(n_admissible);
    if (Step step = all_logits_step(); !step.empty()) {
        return step;
    }
    Step           step;
    const uint64_t group     = next_group();
    const auto     is_chosen = [&](const Task & task) { return !task.needs_all_logits && task.adapter_group == group; };
    for (const auto & task : running_) {
        if (is_chosen(*task) && task->n_pending() == 1) {
            step.add(task, 1);
        }
    }
    std::vector<std::shared_ptr<Task>> prompts;
    for (const auto & task : running_) {
        if (is_chosen(*task) && task->n_pending() > 1) {
            prompts.push_back(task);
        }
    }
    add_prefill_chunks(
        step, prompts,
        round_to_micro_batches(step.n_tokens, std::min(limits_.n_batch - step.n_tokens, prefill_tokens(budget))));
    if (n_per_stream()) {
        order_for_streams(step);
    }
    return step;
}

// Add `n` tokens of prompts, which are in order of arrival. The shortest ones get three quarters of them, so that a
// short prompt does not wait for the long ones before it; the oldest ones get the rest, so that each of them ends.
void Scheduler::add_prefill_chunks(Step & step, const std::vector<std::shared_ptr<Task>> & prompts, uint32_t n) {
    std::vector<std::shared_ptr<Task>> shortest_first = prompts;
    std::stable_sort(shortest_first.begin(), shortest_first.end(),
                     [](const auto & a, const auto & b) { return a->n_pending() < b->n_pending(); });
    std::vector<uint32_t> chunks(prompts.size());  // of `prompts`
    uint32_t              n_left = n;
    const auto            extend = [&](const std::shared_ptr<Task> & task, uint32_t most) {
        const auto     i     = std::find(prompts.begin(), prompts.end(), task) - prompts.begin();
        const uint32_t added = std::min(std::min(most, n_left), n_to_checkpoint(*task) - chunks[i]);
        chunks[i] += added;
        n_left -= added;
        return added;
    };
    uint32_t n_shortest = n - n / 4;
    for (const auto & task : shortest_first) {
        n_shortest -= task->prefer_throughput ? 0 : extend(task, n_shortest);
    }
    for (const auto & task : prompts) {
        extend(task, n_left);
    }
    for (size_t i = 0; i < prompts.size(); i++) {
        if (chunks[i] > 0) {
            step.add(prompts[i], chunks[i]);
        }
    }
}

// Order the slices by sequence. Upstream computes sequences with consecutive numbers together, as many tokens of each,
// so prompts of different lengths would end in many small micro-batches: in descending order, each prompt gets
// micro-batches of its own.
void Scheduler::order_for_streams(Step & step) const {
    const auto decodes   = [](const Slice & slice) { return slice.n == 1; };
    const auto ascending = [](const Slice & a, const Slice & b) { return a.task->seq_id < b.task->seq_id; };
    const auto prefill   = std::partition(step.slices.begin(), step.slices.end(), decodes);
    std::sort(step.slices.begin(), prefill, ascending);
    std::sort(prefill, step.slices.end(), ascending);
    const bool same_length =
        std::all_of(prefill, step.slices.end(), [&](const Slice & slice) { return slice.n == prefill->n; });
    if (!same_length) {
        std::reverse(prefill, step.slices.end());
    }
}

uint32_t Scheduler::prefill_tokens(const PrefillBudget & budget) const {
    uint32_t limit = budget.throughput;
    for (const auto & task : running_) {
        if (task->needs_all_logits || task->prefer_throughput) {
            continue;
        }
        if (task->n_pending() == 1) {
            return budget.with_decode;
        }
        limit = budget.without_decode;
    }
    return limit;
}

// Return at most `n` tokens, and at least half as many, that fill whole micro-batches together with the others of the
// step: a remainder would be another pass over all weights for a few tokens.
uint32_t Scheduler::round_to_micro_batches(uint32_t n_others, uint32_t n) const {
    const uint32_t whole = (n_others + n) / limits_.n_ubatch * limits_.n_ubatch;
    return whole >= n_others + (n + 1) / 2 ? whole - n_others : n;
}

// Return the group of the next step, which is that of the task that has waited for the most steps.
uint64_t Scheduler::next_group() {
    const Task * longest = nullptr;
    for (const auto & task : running_) {
        if (!task->needs_all_logits && (!longest || task->last_step < longest->last_step)) {
            longest = task.get();
        }
    }
    if (!longest) {
        return 0;
    }
    n_steps_++;
    const uint64_t group = longest->adapter_group;
    for (const auto & task : running_) {
        if (!task->needs_all_logits && task->adapter_group == group) {
            task->last_step = n_steps_;
        }
    }
    return group;
}

// Alternate steps between tasks that need all logits and other tasks.
Step Scheduler::all_logits_step() {
    Step       step;
    const auto task =
        std::find_if(running_.begin(), running_.end(), [](const auto & each) { return each->needs_all_logits; });
    const bool others =
        std::any_of(running_.begin(), running_.end(), [](const auto & each) { return !each->needs_all_logits; });
    last_step_was_all_logits_ = task != running_.end() && !(others && last_step_was_all_logits_);
    if (last_step_was_all_logits_) {
        step.add(*task, std::min(limits_.n_rows, (*task)->n_pending()));
    }
    return step;
}

void Scheduler::commit(const Step & step) {
    for (const Slice & slice : step.slices) {
        slice.task->n_past = slice.first + slice.n;
        save_checkpoint(*slice.task);
    }
}

void Scheduler::rollback(const Step & step) {
    for (const Slice & slice : step.slices) {
        rewind_to(slice.task, slice.first);
    }
}

void Scheduler::decode_again(const std::shared_ptr<Task> & task) { rewind_to(task, task->n_tokens() - 1); }

// Discard a running task's results after the first `n` tokens.
void Scheduler::rewind_to(const std::shared_ptr<Task> & task, uint32_t n) {
    task->guesses.clear();
    if (!task->is_running()) {
        return;
    }
    cells_.truncate(task->seq_id, task->n_tokens());
    if (n == 0 || cache_.can_truncate_to(task->seq_id, n)) {
        cache_.truncate(task->seq_id, n);
        task->n_past = n;
    } else {
        preempt(task);
    }
}

void Scheduler::drop_tokens(const std::shared_ptr<Task> & task, uint32_t first, uint32_t n) {
    rewind_to(task, first);
    if (task->is_running()) {
        cells_.truncate(task->seq_id, first);
        checkpoints_.truncate(task->seq_id, first);
    }
    const auto begin = task->tokens.begin() + first;
    task->tokens.erase(begin, begin + n);
    task->checkpoint_at.clear();
    task->n_dropped += n;
}

bool Scheduler::end(Task & task, bool evict_cells) {
    task.guesses.clear();
    if (!task.is_running()) {
        release_fetched(task);
        return remove(waiting_, task);
    }
    const int32_t seq_id = std::exchange(task.seq_id, -1);
    Slot &        slot   = slots_[seq_id];
    const auto    alive  = std::exchange(slot.task, nullptr);
    remove(running_, task);
    const bool keep_cells = !evict_cells && limits_.prefix_cache && task.n_past > 0 &&
                            cache_.can_truncate_to(seq_id, task.n_past) && try_copy(task.tokens, slot.tokens);
    slot.last_used        = ++n_ended_;
    truncate(seq_id, keep_cells ? task.n_past : 0);  // drop cells of the step in which it ended
    return true;
}

void Scheduler::clear_prefix_cache() {
    evict_all();
    snapshots_.clear();
}

void Scheduler::evict_all() {
    while (const auto seq_id = least_recently_used()) {
        drop(*seq_id);
    }
}

const std::vector<int32_t> & Scheduler::cached_tokens(int32_t seq_id, uint64_t cache_salt) const {
    static const std::vector<int32_t> NONE;
    const Slot &                      slot = slots_[seq_id];
    return !slot.task && slot.cache_salt == cache_salt ? slot.tokens : NONE;
}

void Scheduler::erase(int32_t seq_id) {
    if (is_cached(seq_id)) {
        drop(seq_id);
    }
}

void Scheduler::preempt_all() {
    while (!running_.empty()) {
        preempt(running_.back());
    }
    evict_all();
}

void Scheduler::set_layout(uint32_t n_per_stream) {
    const uint32_t n_cells = n_per_stream ? n_per_stream * static_cast<uint32_t>(limits_.n_seq) : limits_.n_cells;
    cells_                 = KvCells(n_cells, limits_.n_seq, n_per_stream);
}

uint32_t Scheduler::n_tokens_of_longest() const {
    uint32_t n = 0;
    for (const auto & task : running_) {
        n = std::max(n, task->n_tokens());
    }
    const size_t n_slots = std::min(slots_.size() - running_.size(), waiting_.size());
    for (size_t i = 0; i < n_slots; i++) {
        n = std::max(n, waiting_[i]->n_tokens());
    }
    return n;
}

bool Scheduler::free_cells() {
    if (least_recently_used()) {
        evict_all();
        return true;
    }
    if (running_.size() < 2) {
        return false;
    }
    preempt(running_.back());
    return true;
}

uint32_t Scheduler::n_cells_running() const {
    std::vector<int32_t> seq_ids;
    for (const auto & task : running_) {
        seq_ids.push_back(task->seq_id);
    }
    return cells_.n_used_by(seq_ids);
}

// Oldest task first, so that it always gets its cells.
void Scheduler::allocate_decode_cells() {
    for (size_t i = 0; i < running_.size(); i++) {
        const auto     task      = running_[i];
        const uint32_t n_missing = task->n_tokens() - cells_.n_used(task->seq_id);
        while (task->is_running() && !evict_until_free(n_missing)) {
            const auto & youngest = running_.back();
            save_snapshot(youngest->seq_id, youngest->cache_salt, youngest->tokens, youngest->n_past);
            preempt(youngest);
        }
        if (task->is_running()) {
            cells_.allocate(task->seq_id, n_missing);
        }
    }
}

void Scheduler::admit(uint64_t n_admissible) {
    size_t n_passed_over = 0;  // an iterator would not survive an add() meanwhile
    while (n_passed_over < waiting_.size() && running_.size() < slots_.size()) {
        const auto task = waiting_[n_passed_over];
        if (task->arrival >= n_admissible) {
            return;
        }
        Prefix prefix = longest_prefix(*task);
        if (fetch(*task, prefix.n)) {
            prefix = longest_prefix(*task);
        }
        if (will_be_cached_soon(*task, prefix.n) || waits_for_long_prompt(*task, prefix.n)) {
            if (++n_passed_over == MAX_SKIPPED) {
                return;
            }
        } else if (assign_slot(task, prefix)) {
            waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(n_passed_over));
        } else {
            return;  // first come, first served: no task overtakes one that waits for cells
        }
    }
}

// Return true if a task's prompt is long and another long one is being prefilled, which fills the steps alone: slots
// stay free for short prompts, and both end as soon as if they were prefilled together.
bool Scheduler::waits_for_long_prompt(const Task & task, uint32_t n_cached) const {
    const auto is_long = [](const Task & each, uint32_t n_past) {
        return !each.needs_all_logits && !each.prefer_throughput && each.n_tokens() > n_past + LONG_PROMPT;
    };
    return is_long(task, n_cached) && std::any_of(running_.begin(), running_.end(),
                                                  [&](const auto & each) { return is_long(*each, each->n_past); });
}

// Streams always have cells for a task.
uint32_t Scheduler::headroom() const { return n_per_stream() ? 0 : HEADROOM; }

// Admit a waiting task to a slot that starts with `prefix`, with cells for its other tokens. Return false if there are
// too few cells.
bool Scheduler::assign_slot(const std::shared_ptr<Task> & task, const Prefix & prefix) {
    if (task->n_tokens() > cells_.n_per_sequence()) {
        return false;  // it waits for a unified KV cache
    }
    if (prefix.snapshot) {
        return assign_slot_from_snapshot(task, *prefix.snapshot);
    }
    const uint32_t n_new       = task->n_tokens() - prefix.n;
    const uint32_t n_required  = n_new + (running_.empty() ? 0 : headroom());
    const bool     is_reusable = prefix.n > 0 && is_cached(prefix.seq_id);

    // Reuse the slot with the prefix in place, or leave it cached for others and share its cells.
    bool in_place = is_reusable && (2 * prefix.n >= cells_.n_used(prefix.seq_id) || !cache_.can_share_cells() ||
                                    available_slot(prefix.seq_id) < 0);
    if (in_place && !rewind(prefix)) {
        return assign_slot(task, longest_in_slots(*task));
    }
    if (!evict_until_free(n_required, prefix.seq_id)) {
        if (!is_reusable || in_place) {
            return false;
        }
        in_place = true;
        save_snapshot(prefix.seq_id);
        truncate(prefix.seq_id, prefix.n);
        if (cells_.n_free() < n_required) {
            return false;
        }
    }

    const int32_t seq_id = in_place ? prefix.seq_id : available_slot(prefix.seq_id);
    if (!in_place) {
        evict(seq_id);
        if (prefix.n > 0) {
            cells_.share(prefix.seq_id, seq_id, prefix.n);
            cache_.share(prefix.seq_id, seq_id, prefix.n);
        }
    }
    cells_.allocate(seq_id, n_new);
    slots_[seq_id].task       = task;
    slots_[seq_id].cache_salt = task->cache_salt;
    slots_[seq_id].tokens.clear();
    task->seq_id    = seq_id;
    task->n_past    = prefix.n;
    task->last_step = n_steps_;
    n_cached_tokens_ += prefix.n;
    if (task->n_preemptions == 0) {
        task->n_cached = prefix.n;
    }
    insert(running_, task);
    release_fetched(*task);
    if (limits_.prefix_cache && snapshots_.unpin_started(lookup_of(*task), prefix.n)) {
        reserve(0);
    }
    return true;
}

// Return a slot without a running task: an empty one, else the least recently used; -1 if there is none.
int32_t Scheduler::available_slot(int32_t except) const {
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        if (!slots_[seq_id].task && cells_.n_used(seq_id) == 0) {
            return seq_id;
        }
    }
    return least_recently_used(except).value_or(-1);
}

bool Scheduler::is_cached(int32_t seq_id) const { return !slots_[seq_id].task && cells_.n_used(seq_id) > 0; }

std::optional<int32_t> Scheduler::least_recently_used(int32_t except) const {
    std::optional<int32_t> best;
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        if (seq_id != except && is_cached(seq_id) && (!best || slots_[seq_id].last_used < slots_[*best].last_used)) {
            best = seq_id;
        }
    }
    return best;
}

// Evict cached slots until `n` cells are free. Return false if that is not enough.
bool Scheduler::evict_until_free(uint32_t n, int32_t except) {
    while (cells_.n_free() < n) {
        const auto seq_id = least_recently_used(except);
        if (!seq_id) {
            return false;
        }
        evict(*seq_id);
    }
    return true;
}

void Scheduler::preempt(std::shared_ptr<Task> task) {
    insert(waiting_, task);
    const int32_t seq_id = std::exchange(task->seq_id, -1);
    slots_[seq_id].task  = nullptr;
    task->n_past         = 0;
    task->guesses.clear();
    task->n_preemptions++;
    n_preemptions_++;
    remove(running_, *task);
    drop(seq_id);
}

void Scheduler::truncate(int32_t seq_id, uint32_t n) {
    cells_.truncate(seq_id, n);
    checkpoints_.truncate(seq_id, n);
    slots_[seq_id].tokens.resize(n);
    cache_.truncate(seq_id, n);
}

// Evict a cached slot, and keep a copy of it in main memory.
void Scheduler::evict(int32_t seq_id) {
    save_snapshot(seq_id);
    drop(seq_id);
}

void Scheduler::drop(int32_t seq_id) { truncate(seq_id, 0); }

}  // namespace pyg
