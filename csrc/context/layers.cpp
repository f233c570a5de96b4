// Hidden states between the layers of a model.
#include "context/forward.hpp"
#include "llama-context.h"
#include "llama-ext.h"

#include <algorithm>
#include <string>

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

pyg::Failure unsupported(const Context & context, const std::string & reason = "") {
    const std::string words = reason.empty() ? "" : " (" + reason + ")";
    return fail(PYG_ERR_UNSUPPORTED_ARCH,
                "the engine does not expose the hidden states of layers for the architecture of %s%s; embed() without "
                "layers gives those of the last",
                context.model->path.c_str(), words.c_str());
}

// Upstream copies n_embd numbers of each token, but some architectures have several residual streams.
void require_rows(const Context & context, int32_t layer) {
    const llm_graph_result * const graph  = context.raw->get_gf_res_reserve();
    const ggml_tensor * const      states = graph->get_layer_inp(layer);
    const ggml_tensor * const      tokens = graph->get_inp_tokens();
    const int64_t                  n_embd = llama_model_n_embd(context.model->raw);
    if (!states || (tokens && ggml_nelements(states) != n_embd * ggml_nelements(tokens))) {
        throw unsupported(context, "they are not " + std::to_string(n_embd) + " numbers of each token");
    }
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
        if (n < 0) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the number of layers is %d: it must not be negative", n);
        }
        std::for_each(layers, layers + n, [&](int32_t layer) { require_layer(context, layer); });
        context.n_outputs = 0;  // the rows of the last batch are without them
        for (int32_t i = 0; i < n; i++) {
            llama_set_embeddings_layer_inp(context.raw, static_cast<uint32_t>(layers[i]), true);
        }
        try {
            plan_graphs(context);
            std::for_each(layers, layers + n, [&](int32_t layer) { require_rows(context, layer); });
        } catch (const pyg::EngineAbort & abort) {
            handle.poisoned = true;
            throw unsupported(context, abort.message);
        } catch (const pyg::Failure & failure) {
            handle.poisoned = failure.code == PYG_ERR_UNSUPPORTED_ARCH;
            throw;
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
