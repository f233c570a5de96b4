// Wake-ups for an event loop, or for one thread that reads many requests.
#pragma once

#include "boundary/guard.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace pyg {

class Waker : NonCopyable {
  public:
    Waker();
    ~Waker();

    // Reserve capacity for one more tag, so that wake() cannot fail even when memory has run out. std::bad_alloc.
    void reserve();

    // Call one of these for each reserve(). Any thread.
    void wake(uint64_t tag) noexcept;
    void cancel_reservation() noexcept;

    // Close the descriptor and drop later tags, when no reader is left.
    void close();

    // Take up to `max_tags` tags; wait for the first until `deadline`, or without limit. Return how many.
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
