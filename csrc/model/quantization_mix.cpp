// Quantization mix: the types upstream's quantiser would choose, for a model described by its sizes or in a file.
#include "boundary/engine_messages.hpp"
#include "boundary/handles.hpp"
#include "boundary/log.hpp"
#include "ggml-cpp.h"
#include "llama-cpp.h"
#include "model/quantizer_rules.hpp"

#include <vector>

namespace {

using pyg::fail;

llama_model_ptr describe(const pyg_quantization_mix_model & model) {
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
    return llama_model_ptr(::llama_quant_model_from_metadata(&desc));
}

// A file's model without weights and vocabulary, as the quantiser reads it.
llama_model_ptr read_model(const char * path) {
    return pyg::read_with_loader(path, [&] {
        std::vector<std::string> splits;
        llama_model_loader loader(nullptr, nullptr, nullptr, path, splits, nullptr, LLAMA_LOAD_MODE_NONE,
                                  /*check_tensors =*/false, /*no_alloc =*/true, /*load_mtp =*/true, nullptr, nullptr);
        if (loader.get_arch() == LLM_ARCH_UNKNOWN) {
            throw fail(PYG_ERR_UNSUPPORTED_ARCH, "%s: this engine (%s) does not know the architecture '%s'", path,
                       pyg_engine_build(), loader.get_arch_name().c_str());
        }
        llama_model_ptr model(llama_model_create(loader, llama_model_default_params()));
        model->load_hparams(loader);
        return model;
    });
}

// Tensors without data, which is all the rules need.
ggml_tensor * add_tensor(ggml_context * ctx, const pyg_quantization_mix_tensor & tensor) {
    const ggml_type type = pyg::checked_type(tensor.type);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (tensor.ne[i] < 1 || (i == 0 && tensor.ne[i] % ggml_blck_size(type) != 0)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "tensor '%s' has a size that its type does not allow", tensor.name);
        }
    }
    ggml_tensor * added = ggml_new_tensor(ctx, type, GGML_MAX_DIMS, tensor.ne);
    ggml_set_name(added, tensor.name);
    return added;
}

// Choose the type of a tensor. Call it once for each, in order: some rules count tensors.
ggml_type choose(quantize_state_impl & state, const ggml_tensor * tensor, ggml_type default_type,
                 const tensor_metadata & about, int32_t wanted) {
    try {
        if (wanted < 0) {
            return llama_tensor_get_type(state, state.params, tensor, default_type, about);
        }
        return tensor_type_fallback(state, tensor, pyg::checked_type(wanted));
    } catch (const std::runtime_error & error) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "tensor '%s' has rows of %lld values: %s", tensor->name,
                   static_cast<long long>(tensor->ne[0]), error.what());
    }
}

void mix(const llama_model & model, int32_t ftype, bool has_imatrix, pyg_quantization_mix_tensor * tensors,
         size_t n_tensors) {
    const llama_ftype mixture      = static_cast<llama_ftype>(ftype);
    const ggml_type   default_type = default_type_of(mixture);
    if (default_type == GGML_TYPE_COUNT) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "the engine's quantiser cannot make files of type %d", ftype);
    }
    llama_model_quantize_params params = ::llama_model_quantize_default_params();
    params.ftype                       = mixture;
    quantize_state_impl state(model, &params);
    state.has_imatrix = has_imatrix;

    const ggml_context_ptr     ctx(ggml_init({ggml_tensor_overhead() * (n_tensors + 1), nullptr, /*no_alloc =*/true}));
    std::vector<ggml_tensor *> all;
    std::vector<tensor_metadata> about(n_tensors);
    for (size_t i = 0; i < n_tensors; i++) {
        all.push_back(add_tensor(ctx.get(), tensors[i]));
        about[i].name = tensors[i].name;
    }
    init_quantize_state_counters(state, about);
    for (size_t i = 0; i < n_tensors; i++) {
        pyg_quantization_mix_tensor & tensor = tensors[i];
        tensor.is_mixed                      = tensor_allows_quantization(&params, model.arch, all[i]);
        tensor.needs_imatrix = tensor.is_fallback = false;
        if (!tensor.is_mixed) {
            continue;
        }
        const int       n_fallback = state.n_fallback;
        const ggml_type type       = choose(state, all[i], default_type, about[i], tensor.wanted);
        tensor.type                = type;
        tensor.is_fallback         = state.n_fallback > n_fallback;
        tensor.needs_imatrix =
            tensor_requires_imatrix(tensor.name, type, mixture) || ggml_quantize_requires_imatrix(type);
    }
}

}  // namespace

pyg_status pyg_quantization_mix_types(const pyg_quantization_mix_model * model, int32_t ftype, bool has_imatrix,
                                      pyg_quantization_mix_tensor * tensors, size_t n_tensors, pyg_error * err) {
    return pyg::guard(err, [&] {
        const pyg::LogMute quietly;  // the caller sees which types were chosen
        mix(*describe(*model), ftype, has_imatrix, tensors, n_tensors);
    });
}

pyg_status pyg_quantization_mix_types_of_file(const char * path, int32_t ftype, bool has_imatrix,
                                              pyg_quantization_mix_tensor * tensors, size_t n_tensors,
                                              pyg_error * err) {
    return pyg::guard(err, [&] {
        const pyg::LogMute quietly;
        mix(*read_model(path), ftype, has_imatrix, tensors, n_tensors);
    });
}
