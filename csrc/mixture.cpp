// Which types the engine's quantiser mixes, asked for a model that is not there yet.
#include "ggml.h"
#include "guard.hpp"
#include "llama-arch.h"
#include "llama-ext.h"
#include "llama-hparams.h"
#include "llama.h"

#include <memory>
#include <vector>

namespace {

using pyg::fail;

struct FreeModel {
    void operator()(llama_model * model) const { llama_model_free(model); }
};
struct FreeState {
    void operator()(quantize_state_impl * state) const { llama_quant_free(state); }
};
struct FreeTensors {
    void operator()(ggml_context * ctx) const { ggml_free(ctx); }
};
using UniqueModel   = std::unique_ptr<llama_model, FreeModel>;
using UniqueState   = std::unique_ptr<quantize_state_impl, FreeState>;
using UniqueTensors = std::unique_ptr<ggml_context, FreeTensors>;

UniqueModel describe(const pyg_mixture_model & model) {
    if (llm_arch_from_string(model.architecture) == LLM_ARCH_UNKNOWN) {
        throw fail(PYG_ERR_UNSUPPORTED_ARCH, "the engine does not know the architecture '%s'", model.architecture);
    }
    if (model.n_layer < 1 || model.n_layer > LLAMA_MAX_LAYERS) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the model has %u blocks; the engine takes 1 to %d", model.n_layer,
                   LLAMA_MAX_LAYERS);
    }
    llama_quant_model_desc desc{};
    desc.architecture  = model.architecture;
    desc.n_embd        = model.n_embd;
    desc.n_ff          = model.n_ff;
    desc.n_layer       = model.n_layer;
    desc.n_head        = model.n_head;
    desc.n_head_kv     = model.n_head_kv;
    desc.n_expert      = model.n_expert;
    desc.n_embd_head_k = model.n_embd_head;
    desc.n_embd_head_v = model.n_embd_head;
    return UniqueModel(llama_quant_model_from_metadata(&desc));
}

void require_known_type(int32_t type) {
    if (type < 0 || type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) == 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%d is not the number of a ggml type", type);
    }
}

// Tensors without data, which is all that the rules look at.
ggml_tensor * add_tensor(ggml_context * ctx, const pyg_mixture_tensor & tensor) {
    require_known_type(tensor.type);
    const ggml_type type = static_cast<ggml_type>(tensor.type);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (tensor.ne[i] < 1 || (i == 0 && tensor.ne[i] % ggml_blck_size(type) != 0)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "tensor '%s' has a size that its type cannot have", tensor.name);
        }
    }
    ggml_tensor * added = ggml_new_tensor(ctx, type, GGML_MAX_DIMS, tensor.ne);
    ggml_set_name(added, tensor.name);
    return added;
}

}  // namespace

pyg_status pyg_mixture_types(const pyg_mixture_model * model, int32_t ftype, pyg_mixture_tensor * tensors,
                             size_t n_tensors, pyg_error * err) {
    return pyg::guard(err, [&] {
        const llama_ftype mixture = static_cast<llama_ftype>(ftype);
        if (llama_ftype_get_default_type(mixture) == GGML_TYPE_COUNT) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "%d is not the number of a file type", ftype);
        }
        const UniqueModel           mock   = describe(*model);
        llama_model_quantize_params params = llama_model_quantize_default_params();
        const UniqueState           state(llama_quant_init(mock.get(), &params));
        const UniqueTensors ctx(ggml_init({ggml_tensor_overhead() * (n_tensors + 1), nullptr, /*no_alloc =*/true}));
        std::vector<ggml_tensor *> all;
        for (size_t i = 0; i < n_tensors; i++) {
            all.push_back(add_tensor(ctx.get(), tensors[i]));
        }
        std::vector<ggml_type> types(n_tensors);
        llama_quant_compute_types(state.get(), mixture, all.data(), types.data(), n_tensors);
        for (size_t i = 0; i < n_tensors; i++) {
            tensors[i].type = types[i];
        }
    });
}
