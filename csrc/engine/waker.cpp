#include "engine/waker.hpp"

#include "engine/deadline.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pyg {

Waker::Waker() {
    if (!platform::open_wake_descriptor(descriptor_)) {
        throw fail(PYG_ERR_ENGINE, "could not create a file descriptor to wake the event loop: %s",
                   std::strerror(errno));
    }
}

Waker::~Waker() { close(); }

void Waker::close() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
        return;
    }
    closed_ = true;
    tags_.clear();
    platform::close_wake_descriptor(descriptor_);
}

void Waker::reserve() {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t                needed = tags_.size() + n_reserved_ + 1;
    if (needed > tags_.capacity()) {
        tags_.reserve(2 * needed);
    }
    n_reserved_++;
}

void Waker::cancel_reservation() noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    n_reserved_--;
}

void Waker::wake(uint64_t tag) noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    n_reserved_--;
    if (closed_) {
        return;
    }
    if (tags_.empty()) {
        platform::signal_wake_descriptor(descriptor_);
    }
    tags_.push_back(tag);
    changed_.notify_one();
}

int32_t Waker::take(std::optional<std::chrono::steady_clock::time_point> deadline, uint64_t * tags, int32_t max_tags) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto                   some = [&] { return !tags_.empty(); };
    if (deadline) {
        changed_.wait_until(lock, *deadline, some);
    } else {
        changed_.wait(lock, some);
    }
    const auto n = static_cast<std::ptrdiff_t>(std::min(tags_.size(), static_cast<size_t>(std::max(max_tags, 0))));
    std::copy_n(tags_.begin(), n, tags);
    tags_.erase(tags_.begin(), tags_.begin() + n);
    if (n > 0 && tags_.empty()) {
        platform::drain_wake_descriptor(descriptor_);
    }
    return static_cast<int32_t>(n);
}

}  // namespace pyg

pyg_status pyg_waker_new(pyg_waker ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_waker(); });
}

pyg_status pyg_waker_fd(pyg_waker * waker, int32_t * out, pyg_error * err) {
    return pyg::with(waker, err, [&](const pyg::Waker & self) { *out = self.fd(); });
}

pyg_status pyg_waker_take(pyg_waker * waker, double timeout_s, uint64_t * tags, int32_t max_tags, int32_t * n_out,
                          pyg_error * err) {
    // Not pyg::with, which would hold the handle's lock while waiting and block requests that name the waker.
    return pyg::guard(
        err, [&] { *n_out = pyg::shared_object(waker)->take(pyg::deadline_after(timeout_s), tags, max_tags); });
}

void pyg_waker_free(pyg_waker * waker) { pyg::free_handle(waker); }
