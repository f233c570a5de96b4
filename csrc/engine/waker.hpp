// How an event loop, or one thread with many requests, learns which of them to read.
#pragma once

#include "boundary/guard.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace pyg {

class Waker {
  public:
    Waker();
    ~Waker();
    Waker(const Waker &)             = delete;
    Waker & operator=(const Waker &) = delete;

    // Makes room for one more tag, so that to tell it cannot fail: whoever tells may be reporting that there is no
    // memory. std::bad_alloc.
    void reserve();

    // One of these for each expect(). Any thread.
    void wake(uint64_t tag) noexcept;
    void cancel_reservation() noexcept;

    // Nothing reads any more: closes the descriptor, and later tags are dropped.
    void close();

    // Takes up to `max_tags`; waits for the first until `give_up`, or forever. Returns how many.
    int32_t take(std::optional<std::chrono::steady_clock::time_point> deadline, uint64_t * tags, int32_t max_tags);

    int fd() const { return read_fd_; }

  private:
    void signal_fd();
    void clear_fd();

    std::mutex              mutex_;
    std::condition_variable changed_;
    std::vector<uint64_t>   tags_;  // the descriptor is readable while there are any
    size_t                  n_reserved_ = 0;
    bool                    closed_     = false;
    int                     read_fd_    = -1;
    int                     write_fd_   = -1;  // the same on Linux
};

}  // namespace pyg

struct pyg_waker : pyg::Handle {
    std::shared_ptr<pyg::Waker> waker;

    pyg_waker() : Handle(PYG_HANDLE_WAKER), waker(std::make_shared<pyg::Waker>()) {}
    void release() { waker->close(); }
    void leak() { pyg::leak_object(std::move(waker)); }
};
