// Samplers that take long to set up, kept to be copied.
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

// A model's most recently used samplers. Any thread.
class SamplerCache {
  public:
    // A copy, which the caller owns, of the sampler with a key. `make` makes one that has not been used, the first
    // time.
    llama_sampler * copy(const std::string & key, const std::function<UniqueSampler()> & make);

  private:
    struct Entry {
        std::string   key;
        UniqueSampler sampler;
    };

    std::mutex       mutex_;    // held while making one, too: others with the same key wait for it
    std::list<Entry> entries_;  // most recently used first
};

}  // namespace pyg
