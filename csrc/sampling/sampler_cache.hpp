// Cache of samplers that are slow to create.
#pragma once

#include "llama.h"

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

namespace pyg {

struct SamplerDeleter {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};

using UniqueSampler = std::unique_ptr<llama_sampler, SamplerDeleter>;

// The most recently used samplers of a model. Any thread.
class SamplerCache {
  public:
    // Return a copy, owned by the caller, of the sampler with a key. On first use `make` creates it, in its initial
    // state.
    llama_sampler * copy(const std::string & key, const std::function<UniqueSampler()> & make);

  private:
    struct Entry {
        std::string   key;
        UniqueSampler sampler;
    };

    std::mutex       mutex_;    // also held while creating one, so that others with the same key wait
    std::list<Entry> entries_;  // most recently used first
};

}  // namespace pyg
