// Cache of samplers that are slow to create.
#pragma once

#include "llama.h"
#include "sampling/lru_cache.hpp"

#include <memory>
#include <mutex>

namespace pyg {

struct SamplerDeleter {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};

using UniqueSampler = std::unique_ptr<llama_sampler, SamplerDeleter>;

inline UniqueSampler new_sampler_chain() { return UniqueSampler(llama_sampler_chain_init({/*no_perf =*/true})); }

// The most recently used samplers of a model. Any thread.
class SamplerCache {
  public:
    // Return a copy, owned by the caller, of the sampler with a key. On first use `make` creates it, in its initial
    // state.
    template <class Make>
    llama_sampler * copy(const std::string & key, Make && make) {
        std::lock_guard<std::mutex> lock(mutex_);
        return llama_sampler_clone(samplers_.get(key, make).get());
    }

  private:
    std::mutex                  mutex_;  // also held while creating one, so that others with the same key wait
    LruCache<UniqueSampler, 16> samplers_;
};

}  // namespace pyg
