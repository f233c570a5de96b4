#include "engine/adapters.hpp"

#include "adapters/applied_weights.hpp"
#include "adapters/hash.hpp"
#include "boundary/backend_loader.hpp"
#include "context/forward.hpp"
#include "engine/request.hpp"
#include "ggml-backend.h"
#include "llama-context.h"
#include "llama-memory.h"
#include "llama-model.h"

#include <algorithm>
#include <random>

namespace {

using pyg::AdapterSet;
using pyg::Context;
using Weights = std::unordered_set<const ggml_tensor *>;

// Tokens of a graph that is built to find products, of one sequence or of each stream, and rows of its output.
constexpr uint32_t N_TOKENS = 7, N_TOKENS_OF_STREAM = 2, N_OUTPUTS = 5;

bool is_product(const ggml_tensor * node) { return node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID; }

bool is_on_cpu(ggml_backend_t backend) {
    const ggml_backend_dev_t device = backend ? ggml_backend_get_device(backend) : nullptr;
    return !device || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

// True if upstream multiplies the products of these weights by a scale, which the low-rank part must not get.
bool has_scale(const llama_model & model, const ggml_tensor * weights) {
    std::string       name   = weights->name;
    const std::string suffix = ".weight";
    return name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0 &&
           model.get_tensor((name.substr(0, name.size() - suffix.size()) + ".scale").c_str()) != nullptr;
}

// Add the weights of products in this graph: to `found` if our kernels compute them, with a row for each token or each
// output; else to `others`.
void add_weights(const Context & context, ggml_cgraph * graph, int64_t n_tokens, int64_t n_outputs, Weights & found,
                 Weights & others) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_tensor * const node = ggml_graph_node(graph, i);
        if (!is_product(node)) {
            continue;
        }
        const ggml_tensor * const weights = node->src[0];
        const ggml_backend_t      backend = ggml_backend_sched_get_tensor_backend(context.raw->get_sched(), node);
        const int64_t             n_rows  = node->op == GGML_OP_MUL_MAT_ID ? node->ne[2] : ggml_nrows(node);
        const bool by_row = (node->op == GGML_OP_MUL_MAT_ID || weights->ne[2] == 1) &&
                            (n_rows == n_tokens || n_rows == n_outputs) && pyg::has_batch_invariant_kernel(node) &&
                            is_on_cpu(backend) && !has_scale(context.raw->get_model(), weights);
        (by_row ? found : others).insert(weights);
    }
}

// Weights of which our kernels compute every product, in small and in large batches. The CPU has to compute each graph
// in one piece, because in each piece the kernels look for its cells: upstream may move products of large batches to a
// device, and divides a graph for a callback.
Weights find_weights(const Context & context) {
    llama_context &       raw     = *context.raw;
    const llama_cparams & options = raw.get_cparams();
    const llama_memory_t  memory  = raw.get_memory();
    const uint32_t        n_seqs  = options.kv_unified ? 1 : options.n_seq_max;
    const uint32_t        n_few   = options.kv_unified ? N_TOKENS : N_TOKENS_OF_STREAM * n_seqs;
    if (pyg::no_kernels() || context.positions.empty() || pyg::device_use_of(&raw).any_on_device || options.cb_eval ||
        n_few > options.n_ubatch) {
        return {};
    }
    const uint32_t n_most = std::min(options.n_ctx, options.n_ubatch) / n_seqs * n_seqs;
    const auto     full   = memory->init_full();
    Weights        found, others;
    for (const uint32_t n_tokens : {n_few, std::max(n_few, n_most)}) {
        const uint32_t      n_outputs = std::min(n_tokens == n_few ? N_OUTPUTS : n_tokens, options.n_outputs_max);
        ggml_cgraph * const graph     = raw.graph_reserve(n_tokens, n_seqs, n_outputs, full.get(), true);
        if (!graph || ggml_backend_sched_get_n_splits(raw.get_sched()) != 1) {
            return {};
        }
        add_weights(context, graph, n_tokens, n_outputs, found, others);
    }
    for (const ggml_tensor * const weights : others) {
        found.erase(weights);
    }
    return found;
}

uint64_t random_number() {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
}

// True if both have the same adapters, not only the same content.
bool is_same(const std::shared_ptr<const AdapterSet> & a, const std::shared_ptr<const AdapterSet> & b) {
    if (!a || !b) {
        return a == b;
    }
    const auto same = [](const AdapterSet::Entry & one, const AdapterSet::Entry & other) {
        return one.adapter == other.adapter && one.scale == other.scale;
    };
    return std::equal(a->entries().begin(), a->entries().end(), b->entries().begin(), b->entries().end(), same);
}

}  // namespace

namespace pyg {

EngineAdapters::EngineAdapters(Context & context) : context_(context), number_(random_number()) {}

void EngineAdapters::set_group(Request & request) {
    const AdapterSet & adapters = *request.adapters;
    if (are_by_row(adapters)) {
        for (const AdapterSet::Entry & entry : adapters.entries()) {
            entry.adapter->pack();
        }
        request.adapter_group = 0;
        return;
    }
    if (!are_applied(context_, adapters)) {
        apply_to_context(request.adapters);
        require_applied(context_, adapters);
    }
    request.adapter_group = group_in_context(adapters);
    request.cache_salt    = salted(request.cache_salt, request.adapter_group);
}

// Return the group of adapters that upstream applies. It adds several in an order that depends on their addresses, and
// so do the bits of the sums.
uint64_t EngineAdapters::group_in_context(const AdapterSet & adapters) const {
    if (adapters.entries().size() == 1) {
        return adapters.key();
    }
    ContentHash hash;
    hash.add(adapters.key());
    hash.add(number_);
    for (const AdapterSet::Entry & entry : adapters.entries()) {
        hash.add(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(entry.adapter->raw())));
    }
    return std::max<uint64_t>(hash.value(), 1);
}

// True if our kernels compute every product that these change.
bool EngineAdapters::are_by_row(const AdapterSet & adapters) {
    if (!by_row_) {
        clear();
        by_row_ = find_weights(context_);
    }
    const auto is_by_row = [&](const AdapterTarget & target) { return by_row_->count(target.weights) > 0; };
    return std::all_of(adapters.entries().begin(), adapters.entries().end(), [&](const AdapterSet::Entry & entry) {
        const auto & targets = entry.adapter->targets();
        return std::all_of(targets.begin(), targets.end(), is_by_row);
    });
}

void EngineAdapters::begin(const Step & step) {
    std::shared_ptr<const AdapterSet> whole;
    Sets                              sets;
    std::vector<int32_t>              set_of(llama_n_seq_max(context_.raw), -1);
    for (const Slice & slice : step.slices) {
        const auto & adapters = static_cast<const Request &>(*slice.task).adapters;
        if (!adapters) {
            continue;
        }
        if (slice.task->adapter_group != 0) {
            whole = adapters;
            continue;
        }
        const auto found =
            std::find_if(sets.begin(), sets.end(), [&](const auto & set) { return is_same(set, adapters); });
        set_of[static_cast<size_t>(slice.task->seq_id)] = static_cast<int32_t>(found - sets.begin());
        if (found == sets.end()) {
            sets.push_back(adapters);
        }
    }
    apply_to_context(std::move(whole));
    if (!std::equal(sets.begin(), sets.end(), sets_.begin(), sets_.end(), is_same)) {
        set_terms(sets);
    }
    sets_   = std::move(sets);  // of these requests, because others may have ended
    set_of_ = std::move(set_of);
    rows_   = {set_of_.data(), static_cast<int32_t>(sets_.size()), terms_of, this};
    set_row_adapters(sets_.empty() ? nullptr : &rows_);
}

void EngineAdapters::end() noexcept { set_row_adapters(nullptr); }

void EngineAdapters::clear() noexcept {
    end();
    sets_.clear();
    terms_.clear();
    try {
        apply_to_context(nullptr);
    } catch (const std::bad_alloc &) {  // the context goes on using them, so they stay
    }
}

// Terms have addresses of adapters, which the sets keep.
void EngineAdapters::set_terms(const Sets & sets) {
    terms_.clear();
    for (size_t set = 0; set < sets.size(); ++set) {
        for (const AdapterSet::Entry & entry : sets[set]->entries()) {
            const auto & targets = entry.adapter->targets();
            for (size_t i = 0; i < targets.size(); ++i) {
                auto & by_set = terms_[targets[i].weights];
                by_set.resize(sets.size());
                by_set[set].push_back(entry.adapter->term(i, entry.scale));
            }
        }
    }
}

int32_t EngineAdapters::terms_of(const void * self, const ggml_tensor * weights, int32_t set,
                                 const pyg_lora_term ** terms) {
    const auto & all   = static_cast<const EngineAdapters *>(self)->terms_;
    const auto   found = all.find(weights);
    if (found == all.end()) {
        return 0;
    }
    const auto & of_set = found->second[static_cast<size_t>(set)];
    *terms              = of_set.data();
    return static_cast<int32_t>(of_set.size());
}

void EngineAdapters::apply_to_context(std::shared_ptr<const AdapterSet> adapters) {
    if (!is_same(whole_, adapters)) {
        std::vector<llama_adapter_lora *> raw;
        std::vector<float>                scales;
        for (const AdapterSet::Entry & entry : adapters ? adapters->entries() : std::vector<AdapterSet::Entry>()) {
            raw.push_back(entry.adapter->raw());
            scales.push_back(entry.scale);
        }
        llama_set_adapters_lora(context_.raw, raw.data(), raw.size(), scales.data());
    }
    whole_ = std::move(adapters);
}

}  // namespace pyg
