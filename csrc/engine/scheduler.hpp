// Who runs next: pure policy, no tensors, no threads, no clocks.
//
// A request is a Task here: its tokens, and how many of them the cache holds. A task waits, runs in one of the cache's
// sequences, and ends; its sequence then keeps what was computed until the room is needed, and a new task starts from
// the longest prefix that any sequence can offer. Whoever came first is served first. When the cells run out, kept
// sequences are forgotten, the least recently used first, then the youngest task gives its room away and waits to be
// computed again: so the oldest task always gets on, and every task ends.
#pragma once

#include "engine/cells.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace pyg {

// What the scheduler asks of the engine's memory: sequences of cached tokens, each from position 0 on.
class Cache {
  public:
    virtual ~Cache() = default;

    // Whether computation can go on after the first `n` of the tokens a sequence holds. Memories of a recurrent state
    // cannot go back; those of a sliding window have forgotten what lies behind it.
    virtual bool can_keep(int32_t seq_id, uint32_t n) const = 0;
    // Whether a sequence can begin with the cells of another.
    virtual bool can_share() const = 0;

    virtual void truncate(int32_t seq_id, uint32_t n)        = 0;  // to the first n: 0, or as can_keep says
    virtual void share(int32_t from, int32_t to, uint32_t n) = 0;  // `to` is empty
};

// What the scheduler knows of a request.
struct Task {
    // The prompt, then what was generated: whoever samples a token for a running task appends it.
    std::vector<int32_t> tokens;
    // It wants the output of every position: computed from its first token, a few rows at a time, with nobody beside
    // it, so that the numbers do not depend on the company.
    bool every_row = false;

    // Kept by the scheduler.
    uint64_t arrival       = 0;
    int32_t  seq_id        = -1;  // while it runs
    uint32_t n_past        = 0;   // tokens computed
    uint32_t n_reused      = 0;   // of the prompt, when it first ran, tokens that were computed already
    int32_t  n_preemptions = 0;

    bool     runs() const { return seq_id >= 0; }
    uint32_t n_tokens() const { return static_cast<uint32_t>(tokens.size()); }
    uint32_t n_pending() const { return n_tokens() - n_past; }
};

// A part of a step: `n` tokens of a task, from its token `first` on.
struct Slice {
    std::shared_ptr<Task> task;
    uint32_t              first;
    uint32_t              n;

    // Whether it reaches the task's last token, so that the next one can be sampled.
    bool ends() const { return first + n == task->n_tokens() && !task->every_row; }
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
        uint32_t n_cells;  // tokens they hold together; no task has more
        uint32_t n_batch;  // tokens of a step; at least n_seq
        uint32_t n_rows;   // tokens of a step that wants the output of each; at most n_batch
        bool     prefix_cache;
    };

    Scheduler(const Limits & limits, Cache & cache);

    void add(std::shared_ptr<Task> task);

    // The next step: a token for each task that decodes, the rest with prompts, of which it takes at most `n_beside`
    // tokens while somebody decodes, else `n_alone`. Empty when nothing is left to do.
    Step next(uint32_t n_beside, uint32_t n_alone = UINT32_MAX);

    // One of these follows each next() whose step was begun. Tasks of the step may have ended meanwhile.
    void computed(const Step & step);
    void interrupted(const Step & step);  // nothing of it counts

    // A task has ended, waiting or running. Its sequence is kept, or forgotten when the memory is in doubt.
    void end(Task & task, bool forget = false);

    // Forgets what is kept for its prefix.
    void forget();

    // Frees room that the bookkeeping cannot account for; false when there is nothing more to give.
    bool give_room();

    const std::deque<std::shared_ptr<Task>> &  waiting() const { return waiting_; }
    const std::vector<std::shared_ptr<Task>> & running() const { return running_; }
    bool                                       idle() const { return waiting_.empty() && running_.empty(); }

    uint32_t n_cells() const { return cells_.n_cells(); }
    uint32_t n_cells_used() const { return cells_.n_cells() - cells_.n_free(); }
    uint32_t n_cells_running() const;
    uint64_t n_reused() const { return n_reused_; }  // tokens that tasks did not have to compute
    uint64_t n_preemptions() const { return n_preemptions_; }

  private:
    struct Sequence {
        std::shared_ptr<Task> task;       // null while nobody runs in it
        std::vector<int32_t>  tokens;     // then: what it keeps
        uint64_t              ended = 0;  // then: when, for the least recently used
    };
    struct Prefix {
        int32_t  seq_id = -1;
        uint32_t n      = 0;
    };

    Step                   rows_step();
    void                   reserve_for_decoding();
    void                   admit();
    bool                   start(const std::shared_ptr<Task> & task, const Prefix & prefix);
    Prefix                 longest_prefix(const Task & task) const;
    bool                   longer_prefix_soon(const Task & task, uint32_t n) const;
    int32_t                other_sequence(int32_t but) const;
    bool                   is_kept(int32_t seq_id) const;
    std::optional<int32_t> oldest_kept(int32_t but = -1) const;
    bool                   make_room(uint32_t n, int32_t but = -1);
    void                   preempt(std::shared_ptr<Task> task);
    void                   shorten(int32_t seq_id, uint32_t n);
    void                   drop(int32_t seq_id);

    const Limits limits_;
    Cache &      cache_;
    Cells        cells_;

    std::deque<std::shared_ptr<Task>>  waiting_;  // both in order of arrival
    std::vector<std::shared_ptr<Task>> running_;
    std::vector<Sequence>              sequences_;
    uint64_t                           n_arrived_          = 0;
    uint64_t                           n_ended_            = 0;
    uint64_t                           n_reused_           = 0;
    uint64_t                           n_preemptions_      = 0;
    bool                               rows_had_last_step_ = false;
};

}  // namespace pyg
