// Hidden states between the layers of a model.
#include "boundary/handles.hpp"
#include "llama-context.h"
#include "llama-ext.h"

#include <algorithm>

namespace {

using pyg::Context;
using pyg::fail;

// Layer i reads the hidden states after i layers.
void require_layer(const Context & context, int32_t layer) {
    const auto n_layer = static_cast<int32_t>(llama_model_n_layer(context.model->raw));
    if (layer < 0 || layer >= n_layer) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "layer %d is out of range: the hidden states of layers 0 to %d are kept",
                   layer, n_layer - 1);
    }
}

pyg::Failure unsupported(const Context & context) {
    return fail(PYG_ERR_UNSUPPORTED_ARCH,
                "the engine does not tell the hidden states of layers for the architecture of %s; embed() without "
                "layers gives those of the last",
                context.model->path.c_str());
}

}  // namespace

pyg_status pyg_context_keep_layers(pyg_context * ctx, const int32_t * layers, int32_t n, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        Context & context = *handle.object;
        if (!context.embeddings) {
            throw fail(PYG_ERR_INVALID_PARAMETER,
                       "hidden states are kept for every token: make the context with embeddings on");
        }
        if (!llama_get_memory(context.raw)) {
            throw unsupported(context);
        }
        std::for_each(layers, layers + n, [&](int32_t layer) { require_layer(context, layer); });
        for (int32_t i = 0; i < n; i++) {
            llama_set_embeddings_layer_inp(context.raw, static_cast<uint32_t>(layers[i]), true);
        }
        try {
            context.raw->sched_reserve();  // builds the graphs
        } catch (const pyg::EngineAbort &) {
            handle.poisoned = true;
            throw unsupported(context);
        }
    });
}

pyg_status pyg_context_layer(pyg_context * ctx, int32_t layer, int32_t first, int32_t n_rows, float * dst,
                             pyg_error * err) {
    return pyg::with(ctx, err, [&](const Context & context) {
        require_layer(context, layer);
        if (!context.raw->get_cparams().embeddings_layer_inp[static_cast<size_t>(layer)]) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the hidden states of layer %d are not kept", layer);
        }
        if (first < 0 || n_rows < 0 || n_rows > context.n_outputs - first) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "rows %d to %lld were requested, but the last batch had %d tokens",
                       first, static_cast<long long>(first) + n_rows - 1, context.n_outputs);
        }
        if (n_rows > 0) {
            const auto    n_embd = static_cast<size_t>(llama_model_n_embd(context.model->raw));
            const float * rows   = llama_get_embeddings_layer_inp(context.raw, static_cast<uint32_t>(layer));
            std::copy_n(rows + static_cast<size_t>(first) * n_embd, static_cast<size_t>(n_rows) * n_embd, dst);
        }
    });
}
