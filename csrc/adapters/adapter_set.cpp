#include "adapters/adapter_set.hpp"

#include "adapters/hash.hpp"

#include <algorithm>
#include <cmath>

namespace pyg {

AdapterSet::AdapterSet(std::vector<Entry> entries) : entries_(std::move(entries)) {
    const auto before = [](const Entry & a, const Entry & b) {
        return a.adapter->content() != b.adapter->content() ? a.adapter->content() < b.adapter->content()
                                                            : a.scale < b.scale;
    };
    std::sort(entries_.begin(), entries_.end(), before);
    ContentHash hash;
    size_t      n_used = 0;
    try {
        for (; n_used < entries_.size(); n_used++) {
            entries_[n_used].adapter->begin_use();
            hash.add(entries_[n_used].adapter->content());
            hash.add(entries_[n_used].scale);
        }
    } catch (...) {
        while (n_used > 0) {
            entries_[--n_used].adapter->end_use();
        }
        throw;
    }
    key_ = std::max<uint64_t>(hash.value(), 1);
}

AdapterSet::~AdapterSet() {
    for (const Entry & entry : entries_) {
        entry.adapter->end_use();
    }
}

std::shared_ptr<const AdapterSet> adapters_of_request(const Model & model, const pyg_scaled_adapter * given,
                                                      int32_t n_given) {
    std::vector<AdapterSet::Entry> entries;
    for (int32_t i = 0; i < n_given; i++) {
        const std::shared_ptr<Adapter> adapter = shared_object(given[i].adapter);
        const float                    scale   = given[i].scale;
        if (&adapter->model() != &model) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the adapter %s was loaded for another model",
                       adapter->path().c_str());
        }
        if (!std::isfinite(scale)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the scale of the adapter %s is %g, which is not a finite number",
                       adapter->path().c_str(), scale);
        }
        const bool again = std::any_of(entries.begin(), entries.end(),
                                       [&](const AdapterSet::Entry & entry) { return entry.adapter == adapter; });
        if (again) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the adapter %s was given twice", adapter->path().c_str());
        }
        if (scale != 0) {
            entries.push_back({adapter, scale});
        }
    }
    return entries.empty() ? nullptr : std::make_shared<const AdapterSet>(std::move(entries));
}

uint64_t salted(uint64_t cache_salt, const AdapterSet * set) {
    return set ? salted(cache_salt, set->key()) : cache_salt;
}

uint64_t salted(uint64_t cache_salt, uint64_t key) {
    ContentHash hash;
    hash.add(cache_salt);
    hash.add(key);
    return std::max<uint64_t>(hash.value(), 1);
}

}  // namespace pyg
