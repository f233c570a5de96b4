#include "context/forward.hpp"

#include "boundary/engine_messages.hpp"
#include "llama-context.h"
#include "llama-model.h"

#include <algorithm>
#include <string>

namespace {

// Return true if the CPU computes with a weight of the output or of a layer on a device: it was placed there by an
// override, as experts are, or the device does not support its type.
bool any_weight_on_cpu(const llama_model & raw) {
    return std::any_of(raw.tensors_by_name.begin(), raw.tensors_by_name.end(), [](const auto & named) {
        const auto & [name, weight] = named;
        const bool is_multiplied    = name.find("blk.") != std::string::npos || name.rfind("output", 0) == 0;
        return is_multiplied && weight->buffer && ggml_backend_buffer_is_host(weight->buffer);
    });
}

// Make upstream reallocate its scratch buffers before the next batch; it would use a buffer it failed to allocate as
// null. Setting a control vector triggers that, and there is none to change.
void renew_scratch(llama_context * context) { llama_set_adapter_cvec(context, nullptr, 0, 0, 0, 0); }

// Let upstream plan its graphs and allocate scratch buffers: nothing unless something has changed.
void plan(const pyg::Context & context) {
    const std::shared_lock<std::shared_mutex> lock(context.model->adapters_mutex);  // it reads the list of adapters
    context.raw->sched_reserve();
}

// Call upstream, and return the status; NO_MEMORY if it cannot allocate scratch buffers, before it computes anything.
template <class Call>
int32_t status_of(const pyg::Context & context, Call && call) {
    int32_t status;
    try {
        status = call();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception & e) {
        require_hosts(context.model->hosts);
        if (!pyg::is_scratch_allocation_failure(e.what())) {
            throw pyg::EngineAbort{e.what()};
        }
        status = pyg::NO_MEMORY;
    }
    require_hosts(context.model->hosts);
    if (status == pyg::NO_MEMORY) {
        renew_scratch(context.raw);
    }
    return status;
}

}  // namespace

namespace pyg {

int32_t compute(Context & context, const llama_batch & batch, Pass pass) {
    const int32_t status = status_of(context, [&] {
        plan(context);
        const int32_t result = pass(context.raw, batch);
        llama_synchronize(context.raw);
        return result;
    });
    context.model->require_files();
    if (status == COMPUTED) {
        context.free_unused_threads();
    }
    return status;
}

void plan_graphs(Context & context) {
    const int32_t status = status_of(context, [&] {
        plan(context);
        return int32_t{COMPUTED};
    });
    if (status != COMPUTED) {
        throw compute_error(status);
    }
}

float * logits_of_last(Context & context, int32_t index) { return context.raw->get_logits_ith(index); }

llama_token sampled_token_of_last(Context & context, int32_t index) {
    return context.raw->get_sampled_token_ith(index);
}

Failure compute_error(int32_t status) {
    const std::string messages = engine_error_text();
    throw_if_out_of_memory("computing the batch", messages);
    return fail(PYG_ERR_ENGINE, "the engine failed to compute the batch (status %d): %s", status, messages.c_str());
}

bool computes_on_cpu(ggml_backend_dev_t device) {
    const enum ggml_backend_dev_type type = device ? ggml_backend_dev_type(device) : GGML_BACKEND_DEVICE_TYPE_CPU;
    return type == GGML_BACKEND_DEVICE_TYPE_CPU || type == GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

DeviceUse device_use_of(const llama_context * context) {
    const llama_model & raw        = context->get_model();
    bool                any_on_cpu = computes_on_cpu(raw.dev_output());
    DeviceUse           places     = {!any_on_cpu, false, !any_on_cpu, context->get_cparams().pipeline_parallel};
    for (uint32_t i = 0; i < raw.hparams.n_layer(); i++) {
        const bool on_cpu    = computes_on_cpu(raw.dev_layer(static_cast<int>(i)));
        any_on_cpu           = any_on_cpu || on_cpu;
        places.any_on_device = places.any_on_device || !on_cpu;
    }
    places.all_on_devices = !any_on_cpu && context->get_cparams().offload_kqv && !any_weight_on_cpu(raw);
    return places;
}

}  // namespace pyg
