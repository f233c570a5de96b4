// What a context would take, before it is taken.
//
// The engine does not refuse an absurd context: it asks the system, the system says yes, and the kernel kills the
// process when the pages are touched. So its own planning is run first, on a copy of the model without weights
// (`no_alloc`), and the plan is compared with what is left.
#include "handles.hpp"
#include "llama-ext.h"
#include "log.hpp"

#include <vector>

namespace {

constexpr uint32_t PLANNED_CELLS = 1 << 18;  // planning takes real memory for each cell, so larger ones are computed
constexpr uint64_t CELL_BYTES    = 64;       // what the engine keeps about a cell beside its keys and values

struct ModelDeleter {
    void operator()(llama_model * model) const { llama_model_free(model); }
};

struct ContextDeleter {
    void operator()(llama_context * context) const { llama_free(context); }
};

std::unique_ptr<llama_model, ModelDeleter> plan_model(const pyg::Model & model) {
    std::vector<ggml_backend_dev_t> devices;
    llama_model_params              params = pyg::model_params(model.device, model.n_gpu_layers, devices);
    params.no_alloc                        = true;
    params.load_mode                       = LLAMA_LOAD_MODE_NONE;
    std::unique_ptr<llama_model, ModelDeleter> plan(llama_model_load_from_file(model.path.c_str(), params));
    if (!plan) {
        throw pyg::fail(PYG_ERR_MODEL_LOAD, "%s could not be read again to plan its memory: %s", model.path.c_str(),
                        pyg::engine_words().c_str());
    }
    return plan;
}

// What the engine plans for the model under these parameters.
pyg_memory_estimate plan(llama_model * model, const llama_context_params & params) {
    const std::unique_ptr<llama_context, ContextDeleter> context(llama_init_from_model(model, params));
    if (!context) {
        throw pyg::fail(PYG_ERR_INVALID_PARAMETER, "the engine refuses a context of this shape: %s",
                        pyg::engine_words().c_str());
    }
    pyg_memory_estimate estimate = {};
    for (const auto & [buffer_type, memory] : llama_get_memory_breakdown(context.get())) {
        const bool host = ggml_backend_buft_is_host(buffer_type);
        (host ? estimate.weights_bytes : estimate.device_weights_bytes) += memory.model;
        (host ? estimate.context_bytes : estimate.device_context_bytes) += memory.context;
        (host ? estimate.compute_bytes : estimate.device_compute_bytes) += memory.compute;
    }
    return estimate;
}

// Everything that depends on the number of cells does so linearly, so two plans give a third.
pyg_memory_estimate extrapolate(llama_model * model, llama_context_params params) {
    const uint32_t n_ctx           = params.n_ctx;
    params.n_ctx                   = PLANNED_CELLS / 2;
    const pyg_memory_estimate half = plan(model, params);
    params.n_ctx                   = PLANNED_CELLS;
    pyg_memory_estimate full       = plan(model, params);

    const double steps = static_cast<double>(n_ctx - PLANNED_CELLS) / (PLANNED_CELLS / 2);
    for (const auto field : {&pyg_memory_estimate::context_bytes, &pyg_memory_estimate::compute_bytes,
                             &pyg_memory_estimate::device_context_bytes, &pyg_memory_estimate::device_compute_bytes}) {
        full.*field += static_cast<uint64_t>(steps * static_cast<double>(full.*field - half.*field));
    }
    full.context_bytes += n_ctx * CELL_BYTES;
    return full;
}

}  // namespace

namespace pyg {

pyg_memory_estimate estimate_memory(const Model & model, const llama_context_params & params) {
    model.require_weights();
    const LogMuted      quietly;
    const auto          weightless = plan_model(model);
    const bool          plannable  = params.n_ctx <= PLANNED_CELLS;
    pyg_memory_estimate estimate   = plannable ? plan(weightless.get(), params) : extrapolate(weightless.get(), params);

    estimate.available_bytes = pyg_memory_available();
    for (int32_t i = 0; i < llama_model_n_devices(weightless.get()); i++) {
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(llama_model_get_device(weightless.get(), i), &free, &total);
        estimate.device_available_bytes += free;
    }
    return estimate;
}

void require_memory(const pyg_memory_estimate & estimate, const std::string & what) {
    const uint64_t required = estimate.context_bytes + estimate.compute_bytes;
    if (required > estimate.available_bytes) {
        throw fail_out_of_memory(what, required, estimate.available_bytes);
    }
    const uint64_t device_required = estimate.device_context_bytes + estimate.device_compute_bytes;
    if (device_required > estimate.device_available_bytes) {
        throw fail_out_of_memory(what + " on the GPU", device_required, estimate.device_available_bytes);
    }
}

}  // namespace pyg

pyg_status pyg_context_estimate(pyg_model * model, const pyg_context_options * options, pyg_memory_estimate * out,
                                pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_model(model);
        *out              = pyg::estimate_memory(*shared, pyg::context_params(*shared, *options));
    });
}
