#include "adapters/applied_weights.hpp"

#include "context/forward.hpp"
#include "llama-context.h"
#include "llama-memory.h"
#include "llama-model.h"

#include <algorithm>
#include <unordered_set>

namespace {

using Tensors = std::unordered_set<const ggml_tensor *>;

constexpr uint32_t N_TOKENS = 2;  // of each sequence in a graph that is built to see what it computes

// Everything that nodes of a graph read, also through views.
Tensors sources_of(const pyg::Context & context) {
    llama_context &       raw     = *context.raw;
    const llama_cparams & options = raw.get_cparams();
    const llama_memory_t  memory  = raw.get_memory();
    const auto            full    = memory ? memory->init_full() : nullptr;
    const uint32_t        n_seqs  = memory && options.kv_unified ? 1 : options.n_seq_max;
    const uint32_t        n       = std::max(std::min(N_TOKENS * n_seqs, options.n_ubatch) / n_seqs, 1u) * n_seqs;
    const uint32_t        n_out   = std::min(n, options.n_outputs_max);
    ggml_cgraph * const   graph   = raw.graph_reserve(n, n_seqs, n_out, full.get(), /*split_only =*/true);
    Tensors               sources;
    for (int i = 0; graph && i < ggml_graph_n_nodes(graph); i++) {
        for (const ggml_tensor * source : ggml_graph_node(graph, i)->src) {
            for (; source; source = source->view_src) {
                sources.insert(source);
            }
        }
    }
    return sources;
}

// Return why the adapter is refused, "" if it is not, from what upstream's graphs read while it is in use.
std::string refusal_of(const pyg::Context & context, const pyg::Adapter & adapter, const Tensors & sources) {
    for (const pyg::AdapterTarget & target : adapter.targets()) {
        if (sources.count(target.weights) > 0 && sources.count(target.a) == 0) {
            return std::string("changes ") + target.weights->name + " of " + context.model->path +
                   ", but the engine computes with it without adapters here";
        }
    }
    return "";
}

}  // namespace

namespace pyg {

bool are_applied(const Context & context, const AdapterSet & adapters) {
    const auto & entries = adapters.entries();
    return std::all_of(entries.begin(), entries.end(), [&](const AdapterSet::Entry & entry) {
        const auto found = context.checked_adapters.find(entry.adapter->content());
        if (found != context.checked_adapters.end() && !found->second.empty()) {
            throw fail(PYG_ERR_UNSUPPORTED_ARCH,
                       "the adapter %s %s; merge the adapter into its model, or generate on the CPU with pyggml's "
                       "kernels",
                       entry.adapter->path().c_str(), found->second.c_str());
        }
        return found != context.checked_adapters.end();
    });
}

void require_applied(Context & context, const AdapterSet & adapters) {
    if (are_applied(context, adapters)) {
        return;
    }
    plan_graphs(context);  // makes them large enough for the adapters
    const Tensors sources = sources_of(context);
    for (const AdapterSet::Entry & entry : adapters.entries()) {
        context.checked_adapters.emplace(entry.adapter->content(), refusal_of(context, *entry.adapter, sources));
    }
    are_applied(context, adapters);  // throws if one is refused
}

}  // namespace pyg
