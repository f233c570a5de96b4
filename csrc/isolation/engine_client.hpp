// Client of an engine in another process: sends requests and updates their mirrors.
#pragma once

#include "engine/request.hpp"
#include "isolation/messages.hpp"
#include "isolation/ring_buffer.hpp"

#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

namespace pyg {

// Data from the other process is not trusted: sizes, ids and numbers are validated, and malformed data ends the
// connection. Three kinds of lock: the client's (requests, calls), the senders', each request's. Only a request's may
// be taken while the client's is held.
class EngineClient : NonCopyable, public std::enable_shared_from_this<EngineClient> {
  public:
    // Create shared memory and socket. `memory` and `socket` are the descriptors for the process to inherit, *owned by
    // the caller*. max_queue 0: no limit.
    EngineClient(uint32_t n_parallel, uint32_t max_queue, int & memory, int & socket);
    ~EngineClient();

    // Receive events until the process exits, or close(). PYG_ERR_ENGINE for malformed data.
    void run();

    // --- any thread ---
    // Send a request and return its mirror. PYG_ERR_QUEUE_FULL; PYG_ERR_ENGINE when the process has exited; and the
    // codes of Request, which validates everything here.
    std::shared_ptr<Request> submit(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
                                    const pyg_request_options & options, const char * bytes, size_t n_bytes);
    void                     notify_when_queue_has_capacity(std::shared_ptr<Waker> waker, uint64_t tag);

    // Send a call; reply() returns the messages of its response in order. At most `max_bytes` of them may wait to be
    // read.
    uint64_t call(const int32_t * numbers, uint32_t n_numbers, const char * bytes, size_t n_bytes, size_t max_bytes);
    // Return the next message; nothing after the timeout. `last`: it ends the response.
    std::optional<std::string> reply(uint64_t id, double timeout_s, bool & last);
    void                       discard(uint64_t id);

    bool has_exited() const;
    // End all pending requests and calls: the process has exited, or the client is closed.
    void fail_all(const pyg_error & why);
    void close();

  private:
    // A mirror, and limits of what may still arrive for it.
    struct Entry {
        std::shared_ptr<Request> request;
        int32_t                  n_vocab;
        size_t                   n_tokens_left, n_prompt_rows_left;

        bool accept(const std::vector<int32_t> & tokens, const LogprobRows & rows, const LogprobRows & prompt_rows);
        bool are_valid_ids(const std::vector<int32_t> & token_ids, int32_t least = 0) const;
    };
    struct Call {
        std::deque<std::pair<std::string, bool>> messages;  // the flag marks the last one
        std::string                              partial;
        size_t                                   n_waiting = 0;  // bytes of both
        size_t                                   max_bytes = 0;
    };

    void   send(uint32_t kind, uint64_t id, const int32_t * numbers, uint32_t n_numbers, const char * bytes,
                size_t n_bytes);
    void   send_all(const void * data, size_t n);
    void   take_events(std::string & bytes);
    bool   sleep();
    void   on_update(uint64_t id, const char * data, size_t n);
    void   on_reply(const Event & event, const char * data);
    void   require_alive_locked() const;
    size_t queue_capacity_locked() const;

    const uint32_t n_parallel_, max_queue_;
    int            socket_ = -1;

    std::optional<RingBuffer> ring_;  // of the receiving thread

    mutable std::mutex                                   mutex_;
    std::condition_variable                              replies_;
    std::optional<pyg_error>                             exit_error_;
    uint64_t                                             next_id_ = 1;
    std::unordered_map<uint64_t, std::shared_ptr<Entry>> requests_;
    std::unordered_map<uint64_t, Call>                   calls_;
    CapacityWaiters                                      capacity_waiters_;

    std::mutex send_mutex_;  // held while a frame is sent
};

}  // namespace pyg
