// Who runs next: pure policy, no tensors, no threads.
//
// One request at a time, first come first served. Requests that ended while they waited are passed over.
#pragma once

#include "request.hpp"

#include <deque>
#include <memory>

namespace pyg {

class Scheduler {
  public:
    // Also lets go of those that ended while they waited.
    void add(std::shared_ptr<Request> request);

    // The next request that is still to be run, already started; null when there is none.
    std::shared_ptr<Request> next();

    // Everything that still waits; the queue is empty afterwards.
    std::deque<std::shared_ptr<Request>> drain();

    bool   empty() const { return waiting_.empty(); }
    size_t n_waiting() const;

  private:
    std::deque<std::shared_ptr<Request>> waiting_;
};

}  // namespace pyg
