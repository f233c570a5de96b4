// The program's side of an engine in another process: passes requests on, and tells their mirrors what came of them.
#pragma once

#include "engine/request.hpp"
#include "isolation/messages.hpp"
#include "isolation/ring_buffer.hpp"

#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

namespace pyg {

// What the other process sends is data: sizes, ids and numbers are checked, and one that makes no sense is the end of
// that process. Three kinds of lock, never held together but for a request's inside the relay's: the relay's (requests,
// calls), the one of those who send, each request's.
class EngineClient : public std::enable_shared_from_this<EngineClient> {
  public:
    // Opens both ends of everything. `memory` and `socket` are what the process inherits, *owned by the caller*.
    // max_queue 0: no limit.
    EngineClient(uint32_t n_parallel, uint32_t max_queue, int & memory, int & socket);
    ~EngineClient();
    EngineClient(const EngineClient &)             = delete;
    EngineClient & operator=(const EngineClient &) = delete;

    // Listens until the process is gone, or close(). PYG_ERR_ENGINE when it sends nonsense.
    void run();

    // --- any thread ---
    // A mirror of a request that the process was told of. PYG_ERR_QUEUE_FULL; PYG_ERR_ENGINE when the process is gone;
    // and the codes of Request, which checks everything here.
    std::shared_ptr<Request> submit(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
                                    const pyg_request_options & options, const char * bytes, size_t n_bytes);
    void                     notify_when_queue_has_capacity(std::shared_ptr<Waker> waker, uint64_t tag);

    // Asks for something else; reply() has the messages of the answer, in order. More than `max_bytes` of them that
    // nobody has taken make no sense.
    uint64_t call(const int32_t * numbers, uint32_t n_numbers, const char * bytes, size_t n_bytes, size_t max_bytes);
    // The next message; nothing if none came in time. `last`: it ends the answer.
    std::optional<std::string> reply(uint64_t id, double timeout_s, bool & last);
    void                       discard(uint64_t id);

    bool has_exited() const;
    // Ends everything that is waiting: the process is gone.
    void fail_all(const pyg_error & why);
    void close();

  private:
    // A mirror, and what may still come for it.
    struct Entry {
        std::shared_ptr<Request> request;
        int32_t                  n_vocab;
        size_t                   n_tokens_left, n_prompt_rows_left;

        bool accept(const std::vector<int32_t> & tokens, const LogprobRows & rows, const LogprobRows & prompt_rows);
        bool are_valid_ids(const std::vector<int32_t> & token_ids) const;
    };
    struct Call {
        std::deque<std::pair<std::string, bool>> messages;  // each with whether it is the last
        std::string                              partial;
        size_t                                   n_waiting = 0;  // bytes in both
        size_t                                   max_bytes = 0;
    };

    void   send(uint32_t kind, uint64_t id, const int32_t * numbers, uint32_t n_numbers, const char * bytes,
                size_t n_bytes);
    void   send_all(const void * data, size_t n);
    void   take_events(std::string & bytes);
    bool   sleep();
    void   on_update(uint64_t id, const char * data, size_t n);
    void   on_reply(const Event & event, const char * data);
    void   end_all(pyg_finish finish, const pyg_error * why);
    void   require_alive_locked() const;
    size_t queue_capacity_locked() const;
    void   notify_capacity_waiters_locked();

    const uint32_t n_parallel_, max_queue_;
    int            socket_ = -1;

    std::optional<RingBuffer> ring_;  // the listening thread's

    mutable std::mutex                                      mutex_;
    std::condition_variable                                 replies_;
    std::optional<pyg_error>                                exit_error_;
    uint64_t                                                next_id_ = 1;
    std::unordered_map<uint64_t, std::shared_ptr<Entry>>    requests_;
    std::unordered_map<uint64_t, Call>                      calls_;
    std::deque<std::pair<std::shared_ptr<Waker>, uint64_t>> capacity_waiters_;

    std::mutex send_mutex_;  // a frame is sent in one piece
};

}  // namespace pyg
