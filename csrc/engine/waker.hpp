// Wake-ups for an event loop, or for one thread that reads many requests.
#pragma once

#include "boundary/guard.hpp"
#include "platform/platform.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
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

    int fd() const { return descriptor_.read; }

  private:
    std::mutex               mutex_;
    std::condition_variable  changed_;
    std::vector<uint64_t>    tags_;  // the descriptor is readable while there are any
    size_t                   n_reserved_ = 0;
    bool                     closed_     = false;
    platform::WakeDescriptor descriptor_;
};

// Wakers to notify when a queue has capacity. Needs the queue's lock.
class CapacityWaiters {
  public:
    // Notify this waker once the queue has capacity; at once if it has some. std::bad_alloc.
    void add(std::shared_ptr<Waker> waker, uint64_t tag, size_t capacity) {
        waker->reserve();
        if (capacity > 0) {
            waker->wake(tag);
        } else {
            waiting_.emplace_back(std::move(waker), tag);
        }
    }

    // Wake only as many as the queue has capacity for, to avoid a stampede.
    void notify(size_t capacity) {
        for (; capacity > 0 && !waiting_.empty(); capacity--) {
            waiting_.front().first->wake(waiting_.front().second);
            waiting_.pop_front();
        }
    }

  private:
    std::deque<std::pair<std::shared_ptr<Waker>, uint64_t>> waiting_;
};

}  // namespace pyg

struct pyg_waker : pyg::PointerHandle<std::shared_ptr<pyg::Waker>, PYG_HANDLE_WAKER> {
    pyg_waker() : PointerHandle(std::make_shared<pyg::Waker>()) {}
    void release() { object->close(); }
};
