// Decides what runs next: pure policy, no tensors, no threads, no clocks.
//
// A request is a Task here: its tokens, and how many of them the cache holds. A task waits, runs in one of the cache's
// sequences, and ends; its sequence then keeps what was computed until the room is needed, and a new task starts from
// the longest prefix that any sequence offers. First come, first served. When cells run out, kept sequences are
// forgotten, the least recently used first; then the youngest task gives up its room and waits to be computed again. So
// the oldest task always advances, and every task ends.
//
// Where a function lacks memory, it throws std::bad_alloc, and no task and no cell is lost: ask again, or end tasks.
#pragma once

#include "engine/kv_cells.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace pyg {

// What the scheduler needs from the engine's memory: sequences of cached tokens, each from position 0 on.
class KvCache {
  public:
    virtual ~KvCache() = default;

    // Whether computation can continue after the first `n` tokens of a sequence. Recurrent states cannot go back;
    // sliding windows have forgotten what lies behind them.
    virtual bool can_truncate_to(int32_t seq_id, uint32_t n) const = 0;
    // Whether a sequence can share the first cells of another.
    virtual bool can_share_cells() const = 0;

    virtual void truncate(int32_t seq_id, uint32_t n)        = 0;  // to the first n: 0, or what can_keep allows
    virtual void share(int32_t from, int32_t to, uint32_t n) = 0;  // `to` is empty
};

// What the scheduler knows about a request.
struct Task {
    // The prompt, then what was generated: sampling for a running task appends here.
    std::vector<int32_t> tokens;
    // It wants the output of every position: computed from its first token, a few rows at a time and alone, so that the
    // numbers do not depend on other tasks.
    bool needs_all_logits = false;
    // Nobody reads its tokens one by one: they may come late if all are done sooner.
    bool prefer_throughput = false;

    // Maintained by the scheduler.
    uint64_t arrival       = 0;
    int32_t  seq_id        = -1;  // while it runs
    uint32_t n_past        = 0;   // tokens computed
    uint32_t n_cached      = 0;   // prompt tokens already computed when it first ran
    int32_t  n_preemptions = 0;

    bool     is_running() const { return seq_id >= 0; }
    uint32_t n_tokens() const { return static_cast<uint32_t>(tokens.size()); }
    uint32_t n_pending() const { return n_tokens() - n_past; }
};

// A part of a step: `n` tokens of a task, from its token `first` on.
struct Slice {
    std::shared_ptr<Task> task;
    uint32_t              first;
    uint32_t              n;

    // Whether it reaches the task's last token, so the next one can be sampled.
    bool reaches_end() const { return first + n == task->n_tokens() && !task->needs_all_logits; }
};

// One forward pass.
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
        int32_t  n_seq;    // tasks that run at once
        uint32_t n_cells;  // tokens they hold in total; no task has more
        uint32_t n_batch;  // tokens of a step; at least n_seq
        uint32_t n_rows;   // tokens of a step that outputs every row; at most n_batch
        bool     prefix_cache;
        uint32_t n_ubatch = UINT32_MAX;  // tokens that are computed at once
    };

    Scheduler(const Limits & limits, KvCache & cache);

    void add(std::shared_ptr<Task> task);

    // The most prompt tokens that a step computes: beside a task that decodes and is watched; while others that are
    // watched run; and when nobody watches any.
    struct PrefillBudget {
        uint32_t with_decode;
        uint32_t without_decode = UINT32_MAX;
        uint32_t throughput     = UINT32_MAX;
    };

    // The next step: one token for each task that decodes, then prompt tokens. Empty when nothing is left to do.
    Step next(const PrefillBudget & budget);

    // Call one of these after each next() whose step was begun. Tasks of the step may have ended meanwhile.
    void commit(const Step & step);
    void rollback(const Step & step);  // none of it counts

    // A waiting or running task has ended. Its sequence is kept, or forgotten if the cache is in doubt or memory is
    // lacking. False if the task had ended before.
    bool end(Task & task, bool evict_cells = false);

    // Forgets the sequences kept for their prefixes.
    void evict_all();

    // Frees room when the cache is full despite the bookkeeping; false if nothing more can be freed.
    bool free_cells();

    const std::deque<std::shared_ptr<Task>> &  waiting() const { return waiting_; }
    const std::vector<std::shared_ptr<Task>> & running() const { return running_; }
    bool                                       idle() const { return waiting_.empty() && running_.empty(); }

    uint32_t n_cells() const { return cells_.n_cells(); }
    uint32_t n_cells_used() const { return cells_.n_cells() - cells_.n_free(); }
    uint32_t n_cells_running() const;
    uint64_t n_cached() const { return n_cached_tokens_; }  // tokens that tasks did not need to compute
    uint64_t n_preemptions() const { return n_preemptions_; }

  private:
    struct Slot {
        std::shared_ptr<Task> task;           // null while no task runs in it
        std::vector<int32_t>  tokens;         // without a task: what it keeps
        uint64_t              last_used = 0;  // without a task: when the last one ended
    };
    struct Prefix {
        int32_t  seq_id = -1;
        uint32_t n      = 0;
    };

    Step                   all_logits_step();
    uint32_t               prefill_tokens(const PrefillBudget & budget) const;
    uint32_t               round_to_micro_batches(uint32_t n_others, uint32_t n) const;
    void                   allocate_decode_cells();
    void                   admit();
    bool                   assign_slot(const std::shared_ptr<Task> & task, const Prefix & prefix);
    Prefix                 longest_cached_prefix(const Task & task) const;
    bool                   will_be_cached_soon(const Task & task, uint32_t n) const;
    int32_t                available_slot(int32_t except) const;
    bool                   is_cached(int32_t seq_id) const;
    std::optional<int32_t> least_recently_used(int32_t except = -1) const;
    bool                   evict_until_free(uint32_t n, int32_t except = -1);
    void                   preempt(std::shared_ptr<Task> task);
    void                   truncate(int32_t seq_id, uint32_t n);
    void                   evict(int32_t seq_id);

    const Limits limits_;
    KvCache &    cache_;
    KvCells      cells_;

    std::deque<std::shared_ptr<Task>>  waiting_;  // both in order of arrival
    std::vector<std::shared_ptr<Task>> running_;
    std::vector<Slot>                  slots_;
    uint64_t                           n_arrived_                = 0;
    uint64_t                           n_ended_                  = 0;
    uint64_t                           n_cached_tokens_          = 0;
    uint64_t                           n_preemptions_            = 0;
    bool                               last_step_was_all_logits_ = false;
};

}  // namespace pyg
