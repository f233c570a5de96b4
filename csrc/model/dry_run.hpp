// Dry run of a model before use, so that a file that makes upstream fail an assert is reported as an error.
//
// Upstream checks types and shapes inside its operations, while it computes. A broken file should be refused when it is
// loaded, without poisoning a context. So one graph of each kind (several tokens, and one) is computed on the calling
// thread in a small temporary context, which leaves nothing behind in caches, states, counters or thread pools. Our
// kernels skip products of weights, which are nearly all of the work.
#pragma once

#include "llama.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace pyg {

struct Model;

// Kinds of contexts in which a model has passed a dry run. Any thread.
class DryRunRecord {
  public:
    using Kind = std::vector<int32_t>;  // parameters that the context's graphs depend on

    bool has(const Kind & kind) {
        std::lock_guard<std::mutex> lock(mutex_);
        return kinds_.count(kind) > 0;
    }

    void add(const Kind & kind) {
        std::lock_guard<std::mutex> lock(mutex_);
        kinds_.insert(kind);
    }

  private:
    std::mutex     mutex_;
    std::set<Kind> kinds_;
};

// PYG_ERR_MODEL_LOAD if the model cannot be computed in a context with these parameters. Runs once for each kind of
// context; not at all where devices compute everything.
void require_dry_run(const Model & model, const llama_context_params & params);

}  // namespace pyg
