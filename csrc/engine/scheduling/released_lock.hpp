// A lock that is released for a while.
#pragma once

#include "boundary/non_copyable.hpp"

#include <mutex>

namespace pyg {

// Releases a lock, which this thread holds, while it lives. Null: does nothing.
class ReleasedLock : NonCopyable {
  public:
    explicit ReleasedLock(std::mutex * lock) : lock_(lock) {
        if (lock_) {
            lock_->unlock();
        }
    }
    ~ReleasedLock() {
        if (lock_) {
            lock_->lock();
        }
    }

  private:
    std::mutex * lock_;
};

}  // namespace pyg
