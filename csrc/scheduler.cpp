#include "scheduler.hpp"

#include <algorithm>
#include <utility>

namespace pyg {

void Scheduler::add(std::shared_ptr<Request> request) {
    const auto ended = [](const auto & waiting) { return !waiting->is_waiting(); };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), ended), waiting_.end());
    waiting_.push_back(std::move(request));
}

std::shared_ptr<Request> Scheduler::next() {
    while (!waiting_.empty()) {
        auto request = std::move(waiting_.front());
        waiting_.pop_front();
        if (request->start()) {
            return request;
        }
    }
    return nullptr;
}

std::deque<std::shared_ptr<Request>> Scheduler::drain() { return std::exchange(waiting_, {}); }

size_t Scheduler::n_waiting() const {
    return static_cast<size_t>(
        std::count_if(waiting_.begin(), waiting_.end(), [](const auto & request) { return request->is_waiting(); }));
}

}  // namespace pyg
