// Kinds of contexts in which a model has passed a dry run (model/dry_run.hpp).
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace pyg {

using DryRunKind = std::vector<int32_t>;  // parameters that the context's graphs depend on

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
