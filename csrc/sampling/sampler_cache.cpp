#include "sampling/sampler_cache.hpp"

#include <algorithm>

namespace {

constexpr size_t MAX_SAMPLERS = 16;

}  // namespace

namespace pyg {

llama_sampler * SamplerCache::copy(const std::string & key, const std::function<UniqueSampler()> & make) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry & e) { return e.key == key; });
    if (found != entries_.end()) {
        entries_.splice(entries_.begin(), entries_, found);
    } else {
        entries_.push_front({key, make()});
        if (entries_.size() > MAX_SAMPLERS) {
            entries_.pop_back();
        }
    }
    return llama_sampler_clone(entries_.front().sampler.get());
}

}  // namespace pyg
