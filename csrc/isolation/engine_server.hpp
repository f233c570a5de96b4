// Server of an engine in its own process: receives requests and sends their updates.
#pragma once

#include "engine/engine.hpp"
#include "isolation/messages.hpp"
#include "isolation/ring_buffer.hpp"

#include <string>
#include <unordered_map>

namespace pyg {

class EngineServer {
  public:
    // Takes ownership of both descriptors.
    EngineServer(int memory, int socket);

    // Send updates of the requests. Never returns: the process exits with its parent.
    [[noreturn]] void run();

    // Wait for the next frame. Return false when the parent has exited. Only one thread may call it. `bytes`: the
    // numbers, then the remaining bytes.
    bool next(Frame & frame, std::string & bytes);

    // --- any thread ---
    // Submit the request of a frame. Errors go to its mirror.
    void submit(pyg_engine * engine, uint64_t id, const int32_t * prompt, int32_t n_prompt,
                const pyg_request_options & options);
    // Fail the request of a frame instead.
    void refuse(uint64_t id, const pyg_error & why);
    // Send a message of the response to a call.
    void reply(uint64_t id, const char * data, size_t n, bool last);

  private:
    struct Entry {
        std::shared_ptr<Request>         request;
        int32_t                          min_tokens;  // fewest new tokens for an update
        std::optional<Clock::time_point> deadline;    // until it has been polled then
        int32_t                          n_sent = 0, n_prompt_rows_sent = 0;
        bool                             end_sent = false;
    };

    bool read(void * data, size_t n);
    void cancel(uint64_t id);
    void send_error(uint64_t id, const pyg_error & error);
    void poll_request(uint64_t id);
    bool forward(uint64_t id, Entry & entry);
    void poll_expired();
    void write_event(const Event & event, const std::string & data);
    void write_all(const void * data, size_t n);
    void wake_reader();

    std::optional<Clock::time_point> first_deadline() const;

    RingBuffer      ring_;
    const int       socket_;
    const pyg_waker waker_;        // shared by all requests
    std::mutex      write_mutex_;  // held while an event is written

    mutable std::mutex                                   mutex_;
    std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries_;
    std::unordered_map<uint64_t, bool>                   arrived_;  // not submitted yet; true: already cancelled
};

}  // namespace pyg
