// The side of the process that has the engine: takes requests in, and passes on what comes of them.
#pragma once

#include "engine/engine.hpp"
#include "isolation/messages.hpp"
#include "isolation/ring_buffer.hpp"

#include <string>
#include <unordered_map>

namespace pyg {

class EngineServer {
  public:
    // Takes over both descriptors.
    EngineServer(int memory, int socket);

    // Passes on what comes of the requests. Never returns: the process ends with the program.
    [[noreturn]] void run();

    // Waits for the next thing to do; false when the program is gone. Only one thread may call it. `bytes`: the
    // numbers, and what comes after them.
    bool next(Frame & frame, std::string & bytes);

    // --- any thread ---
    // Queues the request of a frame; what is wrong with it goes to its mirror.
    void submit(pyg_engine * engine, uint64_t id, const int32_t * prompt, int32_t n_prompt,
                const pyg_request_options & options);
    // Sends a message of the answer to a call.
    void reply(uint64_t id, const char * data, size_t n, bool last);

  private:
    struct Entry {
        std::shared_ptr<Request>         request;
        int32_t                          min_tokens;  // that are worth a message
        std::optional<Clock::time_point> deadline;    // not looked at yet
        int32_t                          n_sent = 0, n_prompt_rows_sent = 0;
        bool                             end_sent = false;
    };

    bool read(void * data, size_t n);
    void cancel(uint64_t id);
    void poll_request(uint64_t id);
    bool forward(uint64_t id, Entry & entry);
    void poll_expired();
    void write_event(const Event & event, const std::string & data);
    void write_all(const void * data, size_t n);
    void wake_reader();

    std::optional<Clock::time_point> first_deadline() const;

    RingBuffer      ring_;
    const int       socket_;
    const pyg_waker waker_;        // of all requests
    std::mutex      write_mutex_;  // an event is written in one piece

    mutable std::mutex                                   mutex_;
    std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries_;
    std::unordered_map<uint64_t, bool>                   arrived_;  // not submitted yet; whether already cancelled
};

}  // namespace pyg
