// Conversion of a pyg_placement to llama_model_params.
#include "model/placement.hpp"

#include "boundary/guard.hpp"
#include "boundary/handles.hpp"
#include "common.h"
#include "llama-model.h"

#include <algorithm>
#include <regex>

namespace {

using pyg::fail;

// Upstream's pattern for the experts of one layer, extended to many layers: upstream compiles each pattern for each
// tensor.
std::string experts_of_first(int32_t n_layers) {
    if (n_layers < 0) {
        return LLM_FFN_EXPS_REGEX;
    }
    std::string blocks;
    for (int32_t i = 0; i < n_layers; i++) {
        blocks += (i ? "|" : "") + std::to_string(i);
    }
    return "blk\\.(" + blocks + ")" + LLM_FFN_EXPS_REGEX;
}

std::regex compiled(const std::string & pattern) {
    try {
        return std::regex(pattern);
    } catch (const std::regex_error & error) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "override_tensor: \"%s\" is not a regular expression: %s",
                   pattern.c_str(), error.what());
    }
}

bool matches_any(const std::regex & pattern, const llama_model & model) {
    const auto & tensors = model.tensors_by_name;
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const auto & tensor) { return std::regex_search(tensor.first, pattern); });
}

}  // namespace

namespace pyg {

Placement::Placement(const pyg_placement & wanted)
    : split_mode_(static_cast<llama_split_mode>(wanted.split_mode)), n_gpu_layers_(wanted.n_gpu_layers) {
    add_devices(wanted);
    if (split_mode_ == LLAMA_SPLIT_MODE_ROW) {
        require_rows_can_be_split();
    }
    add_overrides(wanted);
}

void Placement::add_devices(const pyg_placement & wanted) {
    if (wanted.n_devices < 0 || wanted.n_devices > PYG_MAX_GPUS) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a model goes to 0 to %d devices, not to %d", PYG_MAX_GPUS,
                   wanted.n_devices);
    }
    devices_.clear();
    for (int32_t i = 0; i < wanted.n_devices; i++) {
        devices_.push_back(device_named(wanted.devices[i]));
    }
    hosts_ = hosts_of(devices_);
    devices_.push_back(nullptr);
    if (wanted.n_devices == 0) {
        n_gpu_layers_ = 0;
        split_mode_   = LLAMA_SPLIT_MODE_NONE;
    }
    if (wanted.tensor_split) {
        split_.assign(wanted.tensor_split, wanted.tensor_split + wanted.n_devices);
        split_.resize(std::max(split_.size(), llama_max_devices()));  // upstream reads that many
    }
}

void Placement::require_rows_can_be_split() const {
    for (const ggml_backend_dev_t device : devices_) {
        const ggml_backend_reg_t reg = device ? ggml_backend_dev_backend_reg(device) : nullptr;
        if (reg && !ggml_backend_reg_get_proc_address(reg, "ggml_backend_split_buffer_type")) {
            throw fail(PYG_ERR_INVALID_PARAMETER,
                       "split_mode is \"row\", but the engine cannot divide tensors of %s by rows: \"layer\" works on "
                       "every device, and \"tensor\" divides within layers where the model's architecture allows it",
                       ggml_backend_dev_name(device));
        }
    }
}

void Placement::add_overrides(const pyg_placement & wanted) {
    std::vector<ggml_backend_buffer_type_t> memories;
    for (int32_t i = 0; i < wanted.n_overrides; i++) {
        patterns_.emplace_back(wanted.overrides[i].pattern);
        compiled(patterns_.back());  // check it before the engine, whose message would not name the pattern
        memories.push_back(ggml_backend_dev_buffer_type(device_named(wanted.overrides[i].device)));
    }
    n_own_ = patterns_.size();
    if (wanted.n_cpu_moe != 0 && wanted.n_devices > 0) {
        patterns_.push_back(experts_of_first(wanted.n_cpu_moe));
        memories.push_back(ggml_backend_cpu_buffer_type());
    }
    for (size_t i = 0; i < patterns_.size(); i++) {
        overrides_.push_back({patterns_[i].c_str(), memories[i]});
    }
    if (!overrides_.empty()) {
        overrides_.push_back({nullptr, nullptr});
    }
}

llama_model_params Placement::params() const {
    llama_model_params params    = llama_model_default_params();
    params.devices               = const_cast<ggml_backend_dev_t *>(devices_.data());  // upstream only reads it
    params.n_gpu_layers          = n_gpu_layers_;
    params.split_mode            = split_mode_;
    params.tensor_split          = split_.empty() ? nullptr : split_.data();
    params.tensor_buft_overrides = overrides_.empty() ? nullptr : overrides_.data();
    return params;
}

void Placement::require_matches(const llama_model & model) const {
    for (size_t i = 0; i < n_own_; i++) {
        if (!matches_any(compiled(patterns_[i]), model)) {
            throw fail(PYG_ERR_INVALID_PARAMETER,
                       "override_tensor: no tensor of the model matches \"%s\"; names are like blk.0.attn_q.weight, "
                       "token_embd.weight and output.weight",
                       patterns_[i].c_str());
        }
    }
}

}  // namespace pyg
