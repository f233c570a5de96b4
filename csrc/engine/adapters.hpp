// Adapters of the requests of a step.
//
// Where our kernels compute every product that an adapter changes, each row gets the low-rank parts of its own sequence
// (kernels/lora), so requests with any adapters share a step. All other sets of adapters, on devices and without our
// kernels, are applied by upstream to the whole context: their requests form a group, and a step computes one group.
#pragma once

#include "adapters/adapter_set.hpp"
#include "engine/scheduling/scheduler.hpp"

#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace pyg {

class Request;

// Used by the engine's thread only.
class EngineAdapters : NonCopyable {
  public:
    explicit EngineAdapters(Context & context);
    ~EngineAdapters() { clear(); }

    // Set the group of a request with adapters that is not scheduled yet, 0 if it may share a step with requests
    // without adapters, and its salt, where other engines must not use its KV cells. Builds graphs the first time.
    // PYG_ERR_UNSUPPORTED_ARCH: neither our kernels nor upstream would apply all that they change.
    void set_group(Request & request);

    // Let the context and this thread compute with the adapters of a step, until end().
    void begin(const Step & step);
    void end() noexcept;

    // Use no adapter any more.
    void clear() noexcept;

  private:
    using Sets = std::vector<std::shared_ptr<const AdapterSet>>;

    bool           are_by_row(const AdapterSet & adapters);
    uint64_t       group_in_context(const AdapterSet & adapters) const;
    void           apply_to_context(std::shared_ptr<const AdapterSet> adapters);
    void           set_terms(const Sets & sets);
    static int32_t terms_of(const void * self, const ggml_tensor * weights, int32_t set, const pyg_lora_term ** terms);

    Context &                                              context_;
    const uint64_t                                         number_;  // differs between engines
    std::optional<std::unordered_set<const ggml_tensor *>> by_row_;  // weights whose products our kernels adapt
    std::shared_ptr<const AdapterSet>                      whole_;   // of the whole context

    // Of the current step, by row.
    Sets                                                                             sets_;
    std::vector<int32_t>                                                             set_of_;  // by sequence
    std::unordered_map<const ggml_tensor *, std::vector<std::vector<pyg_lora_term>>> terms_;   // by set
    pyg_row_adapters                                                                 rows_ = {};
};

}  // namespace pyg
