// Which kinds of context a model has been tried in (model/dry_run.hpp).
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace pyg {

using TrialKind = std::vector<int32_t>;  // what the context's graphs depend on

// Any thread.
class Trials {
  public:
    bool has(const TrialKind & kind) {
        std::lock_guard<std::mutex> lock(mutex_);
        return kinds_.count(kind) > 0;
    }

    void add(const TrialKind & kind) {
        std::lock_guard<std::mutex> lock(mutex_);
        kinds_.insert(kind);
    }

  private:
    std::mutex          mutex_;
    std::set<TrialKind> kinds_;
};

}  // namespace pyg
