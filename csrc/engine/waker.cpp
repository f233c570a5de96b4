#include "engine/waker.hpp"

#include "engine/deadline.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#if defined(__linux__)
#    include <sys/eventfd.h>
#endif

namespace {

pyg::Failure no_descriptor() {
    return pyg::fail(PYG_ERR_ENGINE, "could not create a file descriptor to wake the event loop: %s",
                     std::strerror(errno));
}

}  // namespace

namespace pyg {

#if defined(__linux__)

Waker::Waker() : read_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), write_fd_(read_fd_) {
    if (read_fd_ < 0) {
        throw no_descriptor();
    }
}

#else

Waker::Waker() {
    int ends[2];
    if (pipe(ends) != 0) {
        throw no_descriptor();
    }
    for (const int end : ends) {
        fcntl(end, F_SETFD, FD_CLOEXEC);
        fcntl(end, F_SETFL, O_NONBLOCK);
    }
    read_fd_  = ends[0];
    write_fd_ = ends[1];
}

#endif

Waker::~Waker() { close(); }

void Waker::close() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
        return;
    }
    closed_ = true;
    tags_.clear();
    ::close(read_fd_);
    if (write_fd_ != read_fd_) {
        ::close(write_fd_);
    }
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
        // An eventfd takes exactly eight bytes; a pipe takes any number. At most one signal is pending, so neither can
        // be full.
        const uint64_t one = 1;
        (void) !write(write_fd_, &one, sizeof(one));
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
        uint64_t signal;
        (void) !read(read_fd_, &signal, sizeof(signal));
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
