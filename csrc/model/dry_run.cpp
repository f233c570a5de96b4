#include "model/dry_run.hpp"

#include "boundary/backend_loader.hpp"
#include "boundary/handles.hpp"
#include "boundary/log.hpp"
#include "boundary/signals/fault_signals.hpp"
#include "context/forward.hpp"
#include "llama-cpp.h"
#include "llama-model.h"

#include <algorithm>

namespace {

using pyg::Model;

constexpr uint32_t N_CELLS       = 256;
constexpr uint32_t N_BATCH       = 8;
constexpr uint32_t MAX_SEQUENCES = 2;
constexpr int32_t  N_EACH        = 2;  // tokens of each sequence in the first batch

// While it lives, our kernels skip products of weights on this thread.
class DryRunScope : pyg::NonCopyable {
  public:
    DryRunScope() { pyg::set_kernels_dry_run(true); }
    ~DryRunScope() { pyg::set_kernels_dry_run(false); }
};

llama_context_params small(llama_context_params params) {
    params.n_ctx           = std::min(params.n_ctx, N_CELLS);
    params.n_batch         = N_BATCH;
    params.n_ubatch        = N_BATCH;
    params.n_seq_max       = std::min(params.n_seq_max, MAX_SEQUENCES);
    params.n_outputs_max   = 0;
    params.n_threads       = 1;
    params.n_threads_batch = 1;
    params.cb_eval         = nullptr;
    params.abort_callback  = nullptr;
    return params;
}

// One dry run for each combination of these is enough.
pyg::DryRunRecord::Kind kind_of(const llama_context_params & params) {
    return {params.type_k,       params.type_v,         params.flash_attn_type,
            params.pooling_type, params.attention_type, params.rope_scaling_type,
            params.embeddings,   params.offload_kqv,    params.swa_full,
            params.kv_unified,   params.n_seq_max > 1};
}

// Run `n_each` tokens for each of `n_seq` sequences from a position on, all with output. Return upstream's status.
int32_t pass_once(pyg::Pass pass, llama_context * context, int32_t n_seq, int32_t n_each, llama_pos first) {
    llama_seq_id     seq_ids[MAX_SEQUENCES] = {0, 1};
    pyg::BatchArrays batch;
    for (int32_t i = 0; i < n_seq * n_each; i++) {
        batch.add(0, first + i % n_each, &seq_ids[i / n_each], true);
    }
    return pass(context, batch.raw());
}

// Decode both batches, as far as the model has positions for them.
void compute_once(llama_context * context, const Model & model, int32_t n_seq) {
    const pyg::FaultScope fault_scope;
    const DryRunScope     trying;
    const int32_t         n_each = std::min(pyg::n_positions(model), N_EACH);
    if (llama_model_has_encoder(model.raw)) {
        pass_once(llama_encode, context, n_seq, n_each, 0);
    }
    if (!llama_model_has_decoder(model.raw)) {
        return;
    }
    if (pass_once(llama_decode, context, n_seq, n_each, 0) == pyg::COMPUTED && llama_get_memory(context) &&
        n_each < pyg::n_positions(model)) {
        pass_once(llama_decode, context, 1, 1, n_each);
    }
    llama_synchronize(context);
}

// Leak the context of a failed computation if devices are involved: their drivers may fail again in a destructor, which
// would end the process. On the CPU alone it can be freed.
void keep_on_devices(llama_context_ptr & context, const Model & model) {
    if (!model.raw->devices.empty()) {
        (void) context.release();
    }
}

// A context that cannot be created, for lack of memory or otherwise, is reported when the real one is created.
void dry_run(const Model & model, const llama_context_params & params) {
    const pyg::LogMute         quietly;
    std::vector<pyg_positions> positions;  // destroyed after the context, which points to it
    llama_context_ptr          context(pyg::create_context(model.raw, params));
    if (!context || pyg::device_use_of(context.get()).all_on_devices) {
        return;
    }
    try {
        positions = pyg::attach_cell_positions(context.get());
        compute_once(context.get(), model, static_cast<int32_t>(params.n_seq_max));
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const pyg::EngineAbort & abort) {
        keep_on_devices(context, model);
        throw pyg::not_computable(model.path, abort.message);
    } catch (const std::exception & e) {
        keep_on_devices(context, model);
        throw pyg::not_computable(model.path, e.what());
    }
}

}  // namespace

void pyg::require_dry_run(const Model & model, const llama_context_params & params) {
    const llama_context_params smaller = small(params);
    if (model.n_vocab() == 0 || model.dry_runs.has(kind_of(smaller))) {
        return;
    }
    dry_run(model, smaller);
    model.require_files();
    model.dry_runs.add(kind_of(smaller));
}
