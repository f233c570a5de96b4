// How an event loop, or one thread with many requests, learns which of them to read.
#pragma once

#include "boundary/guard.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace pyg {

class Waker {
  public:
    Waker();
    ~Waker();
    Waker(const Waker &)             = delete;
    Waker & operator=(const Waker &) = delete;

    // Any thread.
    void tell(uint64_t tag);

    // Nothing reads any more: closes the descriptor, and later tags are dropped.
    void close();

    // Takes up to `max_tags`; waits for the first until `give_up`, or forever. Returns how many.
    int32_t take(std::optional<std::chrono::steady_clock::time_point> give_up, uint64_t * tags, int32_t max_tags);

    int fd() const { return read_fd_; }

  private:
    void raise_flag();
    void lower_flag();

    std::mutex              mutex_;
    std::condition_variable news_;
    std::deque<uint64_t>    told_;  // the descriptor is readable while there are any
    bool                    closed_   = false;
    int                     read_fd_  = -1;
    int                     write_fd_ = -1;  // the same on Linux
};

}  // namespace pyg

struct pyg_waker : pyg::Handle {
    std::shared_ptr<pyg::Waker> waker;

    pyg_waker() : Handle(PYG_HANDLE_WAKER), waker(std::make_shared<pyg::Waker>()) {}
    void release() { waker->close(); }
    void leak() { new std::shared_ptr<pyg::Waker>(std::move(waker)); }
};
