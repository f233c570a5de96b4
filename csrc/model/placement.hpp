// Placement of a model's weights on devices.
#pragma once

#include "boundary/non_copyable.hpp"
#include "llama.h"
#include "pyggml.h"
#include "remote/hosts.hpp"

#include <string>
#include <vector>

namespace pyg {

// A pyg_placement, and all arrays that llama_model_params points to. Upstream keeps those pointers, so it must live as
// long as the model.
class Placement : NonCopyable {
  public:
    Placement() = default;                             // the CPU
    explicit Placement(const pyg_placement & wanted);  // PYG_ERR_DEVICE, PYG_ERR_INVALID_PARAMETER

    llama_model_params params() const;
    const Hosts &      hosts() const { return hosts_; }  // of the devices

    // Devices that take layers.
    std::vector<ggml_backend_dev_t> devices() const { return {devices_.begin(), devices_.end() - 1}; }

    // PYG_ERR_INVALID_PARAMETER if a pattern is invalid or matches no tensor.
    void require_matches(const llama_model & model) const;

  private:
    void add_devices(const pyg_placement & wanted);
    void require_rows_can_be_split() const;
    void add_overrides(const pyg_placement & wanted);

    std::vector<ggml_backend_dev_t>               devices_ = {nullptr};  // ends with a null
    Hosts                                         hosts_;
    llama_split_mode                              split_mode_ = LLAMA_SPLIT_MODE_NONE;
    std::vector<float>                            split_;  // of each device, or empty
    int32_t                                       n_gpu_layers_ = 0;
    size_t                                        n_own_        = 0;  // the caller's patterns come first
    std::vector<std::string>                      patterns_;
    std::vector<llama_model_tensor_buft_override> overrides_;  // one for each pattern and a final null, or empty
};

}  // namespace pyg
