// Which kinds of context a model has been tried in (model/dry_run.hpp).
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace pyg {

using DryRunKind = std::vector<int32_t>;  // what the context's graphs depend on

// Any thread.
class DryRunRecord {
  public:
    bool has(const DryRunKind & kind) {
        std::lock_guard<std::mutex> lock(mutex_);
        return kinds_.count(kind) > 0;
    }

    void add(const DryRunKind & kind) {
        std::lock_guard<std::mutex> lock(mutex_);
        kinds_.insert(kind);
    }

  private:
    std::mutex           mutex_;
    std::set<DryRunKind> kinds_;
};

}  // namespace pyg
