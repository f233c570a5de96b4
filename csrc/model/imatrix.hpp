// Collector of an importance matrix: sums over the activations that each column of the weights multiplies.
#pragma once

#include "ggml.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace pyg {

// Thread-safe. A context calls it on its decoding thread.
class ImatrixCollector {
  public:
    // Sums of one tensor: (n_counts, n_columns), or (1, n_matrices * n_columns) for matrices that multiply all rows.
    struct Sums {
        std::vector<float>   squares;
        std::vector<float>   activations;
        std::vector<int64_t> counts;  // rows summed: one number, or one for each expert
    };

    // `process_output`: include the output matrix.
    explicit ImatrixCollector(bool process_output) : process_output_(process_output) {}

    // A ggml_backend_sched_eval_callback; `self` is an ImatrixCollector.
    static bool on_node(ggml_tensor * node, bool ask, void * self);

    // PYG_ERR_ENGINE after an activation that was not finite or had another shape than before.
    void require_sound() const;

    // The tensor that follows `after` by name, or "", and the sizes of its sums, which do not change.
    struct Sizes {
        std::string name;
        size_t      n_values = 0, n_counts = 0;
    };
    Sizes next(const std::string & after) const;

    // A copy of a tensor's sums. PYG_ERR_INVALID_PARAMETER if it has none.
    Sums sums(const std::string & name) const;

  private:
    bool   wants(const ggml_tensor & node) const;
    void   collect(const ggml_tensor & node);
    void   add_matrices(const std::string & name, const ggml_tensor & weight, const ggml_tensor & rows);
    void   add_experts(const std::string & name, const ggml_tensor & node);
    Sums * sums_of(const std::string & name, size_t n_values, size_t n_counts);

    bool                        process_output_;
    mutable std::mutex          mutex_;
    std::map<std::string, Sums> entries_;
    std::string                 failure_;  // "" while nothing has failed
    std::vector<char>           copied_;   // activations copied from a device
    std::vector<char>           ids_;
};

}  // namespace pyg
