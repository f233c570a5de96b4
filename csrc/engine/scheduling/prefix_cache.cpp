// The prefix cache of the scheduler: cached prefixes of new tasks, checkpoints of KV caches that cannot be rewound, and
// snapshots of what was evicted.
#include "engine/scheduling/scheduler.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace pyg {

namespace {

// Fewest common tokens for which a task waits until another task has prefilled them.
constexpr uint32_t MIN_SHARED_PREFIX = 32;

// Fewest tokens that are worth a snapshot, and that one must save.
constexpr uint32_t MIN_SNAPSHOT = 32;

// Every admission looks at all snapshots.
constexpr size_t MAX_SNAPSHOTS = 1024;

uint32_t common_prefix(const std::vector<int32_t> & a, uint32_t n_a, const std::vector<int32_t> & b, uint32_t n_b) {
    return pyg::common_prefix(a.data(), n_a, b.data(), n_b);
}

}  // namespace

// Return the longest cached prefix of a task's tokens. The last token is always decoded again for its logits. A
// snapshot has to be clearly longer than what the slots have, because it is copied, unless it waits for this task.
Scheduler::Prefix Scheduler::longest_prefix(const Task & task) const {
    Prefix best = longest_in_slots(task);
    if (!limits_.prefix_cache || task.needs_all_logits || snapshots_.n() == 0) {
        return best;
    }
    const Snapshots::Prefix found = snapshots_.longest(lookup_of(task));
    if (found.n >= best.n + (found.is_pinned ? 1 : MIN_SNAPSHOT)) {
        best = {-1, found.n, nullptr, found.snapshot};
    }
    return best;
}

Scheduler::Prefix Scheduler::longest_in_slots(const Task & task) const {
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

// Return how many tokens a task could start from if a snapshot was fetched from the store; `n` without one.
uint32_t Scheduler::n_fetchable(const Task & task, uint32_t n) const {
    if (!store_ || !limits_.prefix_cache || task.needs_all_logits) {
        return n;
    }
    const uint32_t n_stored = store_->longest(lookup_of(task));
    return n_stored >= n + MIN_SNAPSHOT ? n_stored : n;
}

// Fetch a snapshot from the store if it is clearly longer than the `n` tokens that are in memory. Return true then. If
// it is too large to be kept, it is pinned until the task is admitted or ends.
bool Scheduler::fetch(Task & task, uint32_t n) {
    if (n_fetchable(task, n) == n) {
        return false;
    }
    const auto snapshot = store_->load(lookup_of(task));
    if (!snapshot) {
        return false;
    }
    const bool fits = reserve(snapshot->n_bytes());
    snapshots_.add(snapshot, ++n_uses_, /*is_pinned=*/!fits);
    task.fetched = snapshot;
    return true;
}

// Unpin what was fetched for a task.
void Scheduler::release_fetched(Task & task) {
    if (const auto snapshot = std::exchange(task.fetched, {}).lock()) {
        snapshots_.unpin(*snapshot);
        reserve(0);
    }
}

// Return the longest prefix of the first `n` tokens of a slot to which it can be truncated.
Scheduler::Prefix Scheduler::usable_prefix(int32_t seq_id, uint32_t n) const {
    if (cache_.can_truncate_to(seq_id, n)) {
        return {seq_id, n, nullptr, nullptr};
    }
    const Checkpoint * const checkpoint = longest_checkpoint(checkpoints_.of(seq_id), n);
    return checkpoint ? Prefix{seq_id, checkpoint->n, checkpoint->state, nullptr} : Prefix{};
}

// Truncate a cached slot to a prefix. Return false if its checkpoint cannot be restored: the slot is dropped then.
bool Scheduler::rewind(const Prefix & prefix) {
    if (2 * prefix.n < cells_.n_used(prefix.seq_id)) {
        save_snapshot(prefix.seq_id);  // most of it would be lost
    }
    if (prefix.checkpoint) {
        if (!cache_.restore(prefix.seq_id, prefix.n, *prefix.checkpoint)) {
            drop(prefix.seq_id);
            return false;
        }
        checkpoints_.used(prefix.seq_id, prefix.n, ++n_uses_);
    }
    truncate(prefix.seq_id, prefix.n);
    return true;
}

// Return how many of a task's tokens may be prefilled before its next checkpoint.
uint32_t Scheduler::n_to_checkpoint(const Task & task) const {
    const auto next = std::upper_bound(task.checkpoint_at.begin(), task.checkpoint_at.end(), task.n_past);
    const bool none = !saves_states() || next == task.checkpoint_at.end();
    return none ? task.n_pending() : std::min(task.n_pending(), *next - task.n_past);
}

void Scheduler::save_checkpoint(const Task & task) {
    if (!saves_states() || !task.is_running() || checkpoints_.contains(task.seq_id, task.n_past) ||
        !std::binary_search(task.checkpoint_at.begin(), task.checkpoint_at.end(), task.n_past)) {
        return;
    }
    try {
        auto state = std::make_shared<const StateBytes>(cache_.save(task.seq_id));
        if (!state->empty() && reserve(state->size())) {
            checkpoints_.add(task.seq_id, {task.n_past, std::move(state), ++n_uses_});
        }
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

// Drop the least recently used checkpoints and snapshots until `n_bytes` more fit. Return false if they never will.
bool Scheduler::reserve(size_t n_bytes) {
    if (n_bytes > max_saved_bytes()) {
        return false;
    }
    while (checkpoints_.n_bytes() + snapshots_.n_bytes() > max_saved_bytes() - n_bytes) {
        if (checkpoints_.oldest() < snapshots_.oldest()) {
            checkpoints_.drop_oldest();
        } else {
            snapshots_.drop_oldest();
        }
    }
    return true;
}

Lookup Scheduler::lookup(uint64_t cache_salt, const std::vector<int32_t> & tokens, uint32_t n) const {
    return {cache_salt, n_per_stream() > 0, cache_.can_share_cells(), cells_.n_per_sequence(), tokens.data(), n};
}

// The last token of a task is always decoded again.
Lookup Scheduler::lookup_of(const Task & task) const {
    return lookup(task.cache_salt, task.tokens, task.n_tokens() - 1);
}

// Copy a cached slot to main memory, because its cells are about to be dropped.
void Scheduler::save_snapshot(int32_t seq_id) {
    const Slot & slot = slots_[seq_id];
    save_snapshot(seq_id, slot.cache_salt, slot.tokens, static_cast<uint32_t>(slot.tokens.size()));
}

// Copy the sequence of these `n` tokens, if it is worth it.
void Scheduler::save_snapshot(int32_t seq_id, uint64_t cache_salt, const std::vector<int32_t> & tokens, uint32_t n) {
    if (!saves_states() || n < MIN_SNAPSHOT || !cache_.can_truncate_to(seq_id, n)) {
        return;
    }
    const Lookup of = lookup(cache_salt, tokens, n);
    if (snapshots_.refresh(of, ++n_uses_)) {
        return;
    }
    const size_t n_bytes = cache_.snapshot_size(seq_id);
    if (n_bytes == 0 || n_bytes > max_saved_bytes()) {
        return;
    }
    if (snapshots_.n() >= MAX_SNAPSHOTS && snapshots_.oldest() != UINT64_MAX) {
        snapshots_.drop_oldest();
    }
    try {
        auto snapshot        = std::make_shared<Snapshot>();
        snapshot->cache_salt = cache_salt;
        snapshot->is_divided = of.is_divided;
        snapshot->tokens.assign(tokens.begin(), tokens.begin() + n);
        snapshot->checkpoints = checkpoints_.of(seq_id);
        if (!reserve(n_bytes + snapshot->n_bytes())) {
            return;
        }
        snapshot->state = cache_.take_snapshot(seq_id);
        if (snapshot->state.empty()) {
            return;
        }
        snapshots_.add(snapshot, n_uses_);
        if (of.rewinds) {
            snapshots_.remove_prefixes_of(of);
        }
        if (store_) {
            store_->store(std::move(snapshot));
        }
    } catch (const std::bad_alloc &) {  // the cells are lost, as without snapshots
    }
}

Snapshot Scheduler::snapshot_of(const Task & task) {
    Snapshot snapshot;
    snapshot.cache_salt = task.cache_salt;
    snapshot.is_divided = n_per_stream() > 0;
    snapshot.tokens.assign(task.tokens.begin(), task.tokens.begin() + task.n_past);
    snapshot.checkpoints = checkpoints_.of(task.seq_id);
    snapshot.state       = cache_.take_snapshot(task.seq_id);
    return snapshot;
}

void Scheduler::add_snapshot(std::shared_ptr<const Snapshot> snapshot) {
    Lookup of     = lookup(snapshot->cache_salt, snapshot->tokens, static_cast<uint32_t>(snapshot->tokens.size()));
    of.is_divided = snapshot->is_divided;
    if (!snapshots_.pin(of, ++n_uses_)) {
        snapshots_.add(std::move(snapshot), n_uses_, /*is_pinned=*/true);
    }
}

bool Scheduler::assign_slot_from_snapshot(const std::shared_ptr<Task> & task, const Snapshot & snapshot) {
    const bool is_fetched = task->fetched.lock().get() == &snapshot;
    const bool is_loaded  = load_snapshot(*task, snapshot);
    if (!assign_slot(task, longest_in_slots(*task))) {
        return false;
    }
    if (is_loaded) {
        (is_fetched ? n_store_hits_ : n_snapshot_hits_)++;
        (is_fetched ? n_cached_in_store_ : n_cached_in_snapshots_) += task->n_past;
    }
    return true;
}

void Scheduler::store_cached_slots() {
    for (int32_t seq_id = 0; store_ && seq_id < limits_.n_seq; seq_id++) {
        if (is_cached(seq_id)) {
            save_snapshot(seq_id);
        }
    }
}

// Copy a snapshot into a slot, which is cached then. Return false if there are too few cells for it and the task.
bool Scheduler::load_snapshot(const Task & task, const Snapshot & snapshot) {
    const auto     n          = static_cast<uint32_t>(snapshot.tokens.size());
    const uint32_t n_required = std::max(n, task.n_tokens() + (running_.empty() ? 0 : headroom()));
    if (!evict_until_free(std::min(n_required, cells_.n_cells()))) {
        return false;
    }
    const int32_t           seq_id      = available_slot(-1);
    std::vector<int32_t>    tokens      = snapshot.tokens;
    std::vector<Checkpoint> checkpoints = snapshot.checkpoints;
    evict(seq_id);
    cells_.allocate(seq_id, n);
    if (!cache_.load_snapshot(seq_id, n, snapshot.state)) {
        drop(seq_id);
        snapshots_.remove(snapshot);
        if (store_) {
            store_->forget(snapshot);
        }
        return false;
    }
    Slot & slot     = slots_[seq_id];
    slot.tokens     = std::move(tokens);
    slot.cache_salt = snapshot.cache_salt;
    slot.last_used  = ++n_ended_;
    snapshots_.used(snapshot, ++n_uses_);
    for (Checkpoint & checkpoint : checkpoints) {
        checkpoint.last_used = n_uses_;
        checkpoints_.add(seq_id, std::move(checkpoint));
    }
    reserve(0);
    return true;
}

}  // namespace pyg
