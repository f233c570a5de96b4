// Scheduling policy of the engine: continuous batching, prefix cache and preemption, without tensors, threads or
// clocks.
//
// A request is a Task here: its tokens, and how many of them are in the KV cache. A task waits, is admitted to a slot
// (one sequence of the KV cache), and ends; the slot then caches its tokens until their cells are needed. A new task
// starts from the longest prefix that any slot has cached. Tasks are admitted first come, first served, except that
// long prompts are prefilled one at a time; of the prefill of each step, the shortest prompts get three
// quarters. When
// cells run out, the least recently used cached slots are evicted first; then the youngest running task is preempted,
// which evicts its cells, and waits to be prefilled again. The oldest task is never preempted, so every task ends.
// Where the KV cache cannot be rewound, slots keep checkpoints of their prompts (checkpoints.hpp). Cells that are
// evicted are copied to main memory first, as snapshots (snapshots.hpp), and copied back for a task that can start from
// them.
//
// Tasks of different groups take turns: each group that has waited goes before one that has not, so with k groups a
// task is in every k-th step at the latest.
//
// The KV cache is unified, or divided into streams: each slot then has cells of its own, which attention reads alone,
// and no task may be longer than a stream. Changing the layout preempts and evicts everything.
//
// A function that runs out of memory throws std::bad_alloc and loses no task and no cell: call it again, or end tasks.
#pragma once

#include "engine/scheduling/kv_cells.hpp"
#include "engine/scheduling/snapshot_store.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace pyg {

// The KV cache as the scheduler sees it: sequences of cached tokens, each from position 0 on.
class KvCache {
  public:
    virtual ~KvCache() = default;

    // Return true if decoding can continue after the first `n` tokens of a sequence. Recurrent states cannot be
    // rewound, and sliding windows have dropped older cells.
    virtual bool can_truncate_to(int32_t seq_id, uint32_t n) const = 0;
    // Return true if a sequence can share the first cells of another, and be truncated to any length.
    virtual bool can_share_cells() const = 0;

    // to the first n: 0, or a length that can_truncate_to allows
    virtual void truncate(int32_t seq_id, uint32_t n)        = 0;
    virtual void share(int32_t from, int32_t to, uint32_t n) = 0;  // `to` must be empty; streams copy

    // Return what a truncation to the current length would need later; empty if it cannot be saved.
    virtual StateBytes save(int32_t seq_id) const = 0;
    // Truncate to the first n tokens, where `state` was saved. Return false if that fails: truncate the sequence to 0.
    virtual bool restore(int32_t seq_id, uint32_t n, const StateBytes & state) = 0;

    // Copies of whole sequences take long. Other threads may call Scheduler::add meanwhile, and its getters.
    virtual size_t     snapshot_size(int32_t seq_id) const = 0;  // 0: it is not worth a copy, or cannot be copied
    virtual StateBytes take_snapshot(int32_t seq_id)       = 0;  // empty if that fails
    // Load the snapshot of a sequence of n tokens into an empty sequence. Return false if that fails: truncate it to 0.
    virtual bool load_snapshot(int32_t seq_id, uint32_t n, const StateBytes & state) = 0;
};

// A request, as the scheduler sees it.
struct Task {
    // The prompt, then the generated tokens: sampling appends to it while the task runs.
    std::vector<int32_t> tokens;
    // Outputs logits at every position: prefilled from its first token, without the prefix cache, a few rows per step
    // and alone in the step, so that the logits do not depend on other tasks.
    bool needs_all_logits = false;
    // Tokens may be delivered late and many at once if that finishes all requests sooner.
    bool prefer_throughput = false;
    // Prefixes are shared only among tasks with the same value.
    uint64_t cache_salt = 0;
    // Tasks of different groups are not computed in one step. Set it before the task is scheduled.
    uint64_t adapter_group = 0;
    // Lengths at which the KV cache is saved during the prefill, shortest first.
    std::vector<uint32_t> checkpoint_at;

    // Guesses for the tokens after these, computed with the last one in the current step.
    std::vector<int32_t> guesses;

    // Maintained by the scheduler.
    std::weak_ptr<const Snapshot> fetched;  // for it from the store, until it is admitted

    uint64_t arrival       = 0;
    int32_t  seq_id        = -1;  // its slot while it runs
    uint32_t n_past        = 0;   // tokens in the KV cache
    uint32_t n_cached      = 0;   // prompt tokens found in the prefix cache when it was first admitted
    uint32_t n_dropped     = 0;   // tokens that drop_tokens removed
    int32_t  n_preemptions = 0;
    uint64_t last_step     = 0;  // number of the last step of its group, or of that before which it was admitted

    bool     is_running() const { return seq_id >= 0; }
    uint32_t n_tokens() const { return static_cast<uint32_t>(tokens.size()); }
    uint32_t n_pending() const { return n_tokens() - n_past; }
};

// The share of one task in a step: its tokens [first, first + n), a prefill chunk or one token to decode.
struct Slice {
    std::shared_ptr<Task> task;
    uint32_t              first;
    uint32_t              n;

    // Return true if the chunk includes the task's last token, so that the next one can be sampled.
    bool reaches_end() const { return first + n == task->n_tokens() && !task->needs_all_logits; }
    // Tokens in the batch.
    uint32_t n_columns() const { return n + static_cast<uint32_t>(task->guesses.size()); }
};

// The batch of one forward pass.
struct Step {
    std::vector<Slice> slices;
    uint32_t           n_tokens = 0;

    bool empty() const { return slices.empty(); }
    void add(const std::shared_ptr<Task> & task, uint32_t n) {
        slices.push_back({task, task->n_past, n});
        n_tokens += n;
    }
};

class Scheduler {
  public:
    struct Limits {
        int32_t  n_seq;    // slots: tasks that run at once
        uint32_t n_cells;  // KV cells in total; no task has more
        uint32_t n_batch;  // most tokens of a step; at least n_seq
        uint32_t n_rows;   // most tokens of a step with logits at every position; at most n_batch
        bool     prefix_cache;
        uint32_t n_ubatch           = UINT32_MAX;  // tokens of a micro-batch
        size_t   prefix_cache_bytes = 0;           // of all checkpoints and snapshots; 0: none
    };

    // `store`: the tier below main memory, or null.
    Scheduler(const Limits & limits, KvCache & cache, SnapshotStore * store = nullptr);

    void add(std::shared_ptr<Task> task);

    // The most prompt tokens in a step: while a streamed task decodes, while other streamed tasks run, and when every
    // task prefers throughput.
    struct PrefillBudget {
        uint32_t with_decode;
        uint32_t without_decode = UINT32_MAX;
        uint32_t throughput     = UINT32_MAX;
    };

    // Return the next step: one token for each decoding task, then prefill chunks. Of the tasks that were added, only
    // the first `n_admissible` are admitted. Empty when no task is left, or none of those.
    Step next(const PrefillBudget & budget, uint64_t n_admissible = UINT64_MAX);

    // Add guesses to a decoding task's token in a planned step: the first ones, as many as there are cells and the
    // batch may have tokens. Evicts cached slots, preempts no task.
    void add_guesses(Step & step, Task & task, const std::vector<int32_t> & guesses);
    // After the step was committed and its tokens were sampled: keep the guesses that equal them, and discard the
    // others. Return the number that was kept.
    uint32_t keep_right_guesses(const Slice & slice);

    // Call commit or rollback after each step that was started. Its tasks may have ended meanwhile.
    void commit(const Step & step);
    void rollback(const Step & step);  // discards the whole step
    // Decode a committed task's last token again in the next step.
    void decode_again(const std::shared_ptr<Task> & task);
    // Remove `n` of a running task's tokens, from `first` on. Those behind are prefilled again at their new positions.
    void drop_tokens(const std::shared_ptr<Task> & task, uint32_t first, uint32_t n);

    // End a waiting or running task. Its slot stays cached, or is evicted if `evict_cells` is set or memory is short.
    // Return false if the task had ended before.
    bool end(Task & task, bool evict_cells = false);

    // Evict all cached slots without keeping copies. clear_prefix_cache drops all snapshots as well.
    void evict_all();
    void clear_prefix_cache();

    // Copy a running task's cells, after a step. The result has no state if they cannot be copied.
    Snapshot snapshot_of(const Task & task);
    // Store copies of all cached slots.
    void store_cached_slots();
    // Add a snapshot to the prefix cache, which keeps it at least until a task has started from its tokens.
    void add_snapshot(std::shared_ptr<const Snapshot> snapshot);

    // Preempt all running tasks and evict all slots, for a KV cache of another layout: `n_per_stream` cells for each
    // slot, or 0 for a unified one.
    void preempt_all();
    void set_layout(uint32_t n_per_stream);

    // Cells of a stream; 0: the KV cache is unified.
    uint32_t n_per_stream() const { return cells_.n_per_stream(); }
    int32_t  n_slots() const { return limits_.n_seq; }
    // Cells of a slot.
    uint32_t n_cells_of(int32_t seq_id) const { return cells_.n_used(seq_id); }
    // Tokens that the slot has cached for tasks with this salt; none if a task runs in it.
    const std::vector<int32_t> & cached_tokens(int32_t seq_id, uint64_t cache_salt) const;
    // Drop what an idle slot has cached.
    void erase(int32_t seq_id);
    // Return true if a task runs in the slot.
    bool is_running(int32_t seq_id) const { return slots_[seq_id].task != nullptr; }
    // The longest of the running tasks and of those that wait for the next free slots, in tokens.
    uint32_t n_tokens_of_longest() const;

    // Free cells when the KV cache is full although the scheduler counts free cells. Return false if nothing can be
    // evicted or preempted.
    bool free_cells();

    const std::deque<std::shared_ptr<Task>> &  waiting() const { return waiting_; }
    const std::vector<std::shared_ptr<Task>> & running() const { return running_; }
    bool                                       idle() const { return waiting_.empty() && running_.empty(); }
    uint64_t                                   n_arrived() const { return n_arrived_; }  // tasks that were added

    uint32_t n_cells() const { return cells_.n_cells(); }
    uint32_t n_cells_used() const { return cells_.n_cells() - cells_.n_free(); }
    uint32_t n_cells_running() const;
    uint64_t n_cached() const { return n_cached_tokens_; }  // tokens taken from the prefix cache
    uint64_t n_preemptions() const { return n_preemptions_; }

    // Return true if checkpoints and snapshots are kept.
    bool                saves_states() const { return max_saved_bytes() > 0; }
    const Checkpoints & checkpoints() const { return checkpoints_; }
    const Snapshots &   snapshots() const { return snapshots_; }
    // Tasks that started from a snapshot, and how many of their tokens it had.
    uint64_t n_snapshot_hits() const { return n_snapshot_hits_; }
    uint64_t n_cached_in_snapshots() const { return n_cached_in_snapshots_; }
    // Those whose snapshot was fetched from the store.
    uint64_t n_store_hits() const { return n_store_hits_; }
    uint64_t n_cached_in_store() const { return n_cached_in_store_; }

  private:
    // Most bytes of checkpoints and snapshots.
    size_t max_saved_bytes() const { return limits_.prefix_cache ? limits_.prefix_cache_bytes : 0; }

    struct Slot {
        std::shared_ptr<Task> task;            // null while no task runs in it
        std::vector<int32_t>  tokens;          // cached tokens, while no task runs in it
        uint64_t              cache_salt = 0;  // of its last task
        uint64_t              last_used  = 0;  // when its last task ended, as a count of ended tasks
    };
    struct Prefix {
        int32_t  seq_id = -1;
        uint32_t n      = 0;
        // To restore; null: the slot can be truncated to n.
        std::shared_ptr<const StateBytes> checkpoint;
        // To load first; null: the prefix is in a slot.
        std::shared_ptr<const Snapshot> snapshot;
    };

    uint32_t headroom() const;
    void     order_for_streams(Step & step) const;
    void     add_prefill_chunks(Step & step, const std::vector<std::shared_ptr<Task>> & prompts, uint32_t n);
    bool     waits_for_long_prompt(const Task & task, uint32_t n_cached) const;
    Step     all_logits_step();
    uint64_t next_group();
    uint32_t prefill_tokens(const PrefillBudget & budget) const;
    uint32_t round_to_micro_batches(uint32_t n_others, uint32_t n) const;
    void     allocate_decode_cells();
    void     admit(uint64_t n_admissible);
    bool     assign_slot(const std::shared_ptr<Task> & task, const Prefix & prefix);
    bool     assign_slot_from_snapshot(const std::shared_ptr<Task> & task, const Snapshot & snapshot);
    Prefix   longest_prefix(const Task & task) const;
    Prefix   longest_in_slots(const Task & task) const;
    bool     fetch(Task & task, uint32_t n);
    void     release_fetched(Task & task);
    Prefix   usable_prefix(int32_t seq_id, uint32_t n) const;
    bool     rewind(const Prefix & prefix);
    bool     reserve(size_t n_bytes);
    Lookup   lookup(uint64_t cache_salt, const std::vector<int32_t> & tokens, uint32_t n) const;
    Lookup   lookup_of(const Task & task) const;
    void     save_snapshot(int32_t seq_id, uint64_t cache_salt, const std::vector<int32_t> & tokens, uint32_t n);
    void     save_snapshot(int32_t seq_id);
    bool     load_snapshot(const Task & task, const Snapshot & snapshot);
    void     rewind_to(const std::shared_ptr<Task> & task, uint32_t n);
    uint32_t n_to_checkpoint(const Task & task) const;
    void     save_checkpoint(const Task & task);
    bool     will_be_cached_soon(const Task & task, uint32_t n) const;
    int32_t  available_slot(int32_t except) const;
    bool     is_cached(int32_t seq_id) const;
    std::optional<int32_t> least_recently_used(int32_t except = -1) const;
    bool                   evict_until_free(uint32_t n, int32_t except = -1);
    void                   preempt(std::shared_ptr<Task> task);
    void                   truncate(int32_t seq_id, uint32_t n);
    void                   evict(int32_t seq_id);
    void                   drop(int32_t seq_id);

    const Limits    limits_;
    KvCache &       cache_;
    SnapshotStore * store_;  // may be null
    KvCells         cells_;
    Checkpoints     checkpoints_;
    Snapshots       snapshots_;

    std::deque<std::shared_ptr<Task>>  waiting_;  // both in order of arrival
    std::vector<std::shared_ptr<Task>> running_;
    std::vector<Slot>                  slots_;
    uint64_t                           n_arrived_                = 0;
    uint64_t                           n_ended_                  = 0;
    uint64_t                           n_cached_tokens_          = 0;
    uint64_t                           n_preemptions_            = 0;
    uint64_t                           n_uses_                   = 0;  // of checkpoints and snapshots
    uint64_t                           n_snapshot_hits_          = 0;
    uint64_t                           n_cached_in_snapshots_    = 0;
    uint64_t                           n_store_hits_             = 0;
    uint64_t                           n_cached_in_store_        = 0;
    uint64_t                           n_steps_                  = 0;
    bool                               last_step_was_all_logits_ = false;
};

}  // namespace pyg
