// Adapters of one request, with their scales.
#pragma once

#include "adapters/adapter.hpp"

namespace pyg {

class AdapterSet : NonCopyable {
  public:
    struct Entry {
        std::shared_ptr<Adapter> adapter;
        float                    scale;  // never 0
    };

    // Uses each adapter as long as it lives. PYG_ERR_CLOSED.
    explicit AdapterSet(std::vector<Entry> entries);
    ~AdapterSet();

    const std::vector<Entry> & entries() const { return entries_; }  // in an order that depends on their content
    uint64_t                   key() const { return key_; }          // of content and scales, never 0

  private:
    std::vector<Entry> entries_;
    uint64_t           key_ = 0;
};

// The adapters of a request; null if there are none, or all scales are 0. PYG_ERR_INVALID_PARAMETER: a scale is not
// finite, an adapter occurs twice or belongs to another model. PYG_ERR_CLOSED.
std::shared_ptr<const AdapterSet> adapters_of_request(const Model & model, const pyg_scaled_adapter * given,
                                                      int32_t n_given);

// Salt of the prefix cache for the requests of a set, null for none: KV cells depend on the adapters.
uint64_t salted(uint64_t cache_salt, const AdapterSet * set);
uint64_t salted(uint64_t cache_salt, uint64_t key);

}  // namespace pyg
