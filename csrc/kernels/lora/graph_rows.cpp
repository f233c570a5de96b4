#include "kernels/lora/graph_rows.hpp"

#include "ggml-impl.h"
#include "kernels/attention/stored_keys.hpp"

#include <algorithm>
#include <cstring>

namespace pyg::kernels {

namespace {

thread_local const pyg_row_adapters * t_adapters = nullptr;
thread_local GraphRows                t_rows;

// The node that stores keys in a KV cache whose cells are known.
const ggml_tensor * stored_keys(const ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * const node = graph->nodes[i];
        if (node->op == GGML_OP_SET_ROWS && node->view_src && positions_in(node->view_src)) {
            return node;
        }
    }
    return nullptr;
}

// Upstream's list of the rows with output, or null if the graph has none.
const ggml_tensor * output_ids(const ggml_cgraph * graph) {
    for (int i = graph->n_nodes - 1; i >= 0; --i) {
        const ggml_tensor * const node = graph->nodes[i];
        if (node->op == GGML_OP_GET_ROWS && std::strcmp(node->src[1]->name, "out_ids") == 0) {
            return node->src[1];
        }
    }
    return nullptr;
}

int64_t number_at(const ggml_tensor * numbers, int64_t i) {
    return numbers->type == GGML_TYPE_I64 ? static_cast<const int64_t *>(numbers->data)[i]
                                          : static_cast<const int32_t *>(numbers->data)[i];
}

void find_tokens(const ggml_tensor * keys, const pyg_row_adapters & adapters, RowSets & tokens) {
    const pyg_positions & positions = *positions_in(keys->view_src);
    const ggml_tensor *   cells     = keys->src[1];
    tokens.set_of.clear();
    for (int64_t i = 0; i < cells->ne[0]; ++i) {
        const int32_t sequence = positions.sequence(positions.cache, number_at(cells, i));
        tokens.set_of.push_back(sequence < 0 ? -1 : adapters.set_of[sequence]);
    }
}

void find_outputs(const ggml_tensor * ids, const RowSets & tokens, RowSets & outputs) {
    outputs.set_of.clear();
    for (int64_t i = 0; ids && i < ids->ne[0]; ++i) {
        outputs.set_of.push_back(tokens.set_of.at(static_cast<size_t>(number_at(ids, i))));
    }
}

// Most values of A times rows in any product.
size_t inner_size(const ggml_cgraph * graph, const GraphRows & rows) {
    int64_t most = 0;
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * const node = graph->nodes[i];
        if (node->op != GGML_OP_MUL_MAT && node->op != GGML_OP_MUL_MAT_ID) {
            continue;
        }
        int64_t rank = 0;
        for (int32_t set = 0; set < rows.adapters->n_sets; ++set) {
            const pyg_lora_term * terms   = nullptr;
            const int32_t         n       = rows.terms(node->src[0], set, &terms);
            int64_t               of_this = 0;
            for (int32_t t = 0; t < n; ++t) {
                of_this += terms[t].rank;
            }
            rank = std::max(rank, of_this);
        }
        most = std::max(most, rank * ggml_nrows(node));
    }
    return static_cast<size_t>(most);
}

}  // namespace

void RowSets::sort(int32_t n_sets) {
    first.assign(static_cast<size_t>(n_sets) + 1, 0);
    rows.clear();
    for (int32_t set = 0; set < n_sets; ++set) {
        first[set] = static_cast<int32_t>(rows.size());
        for (size_t row = 0; row < set_of.size(); ++row) {
            if (set_of[row] == set) {
                rows.push_back(static_cast<int32_t>(row));
            }
        }
    }
    first[n_sets] = static_cast<int32_t>(rows.size());
}

const RowSets & GraphRows::rows_of(const ggml_tensor * op) const {
    const int64_t n = n_tokens_of(op);
    GGML_ASSERT((n == tokens.n_rows() || n == outputs.n_rows()) && "rows of a product with adapters");
    return n == tokens.n_rows() ? tokens : outputs;
}

}  // namespace pyg::kernels

void pyg_kernels_set_row_adapters(const pyg_row_adapters * adapters) { pyg::kernels::t_adapters = adapters; }

const void * pyg_begin_row_adapters(const ggml_cgraph * graph) {
    using namespace pyg::kernels;
    if (!t_adapters) {
        return nullptr;
    }
    const ggml_tensor * const keys = stored_keys(graph);
    if (!keys) {
        return nullptr;  // a graph without layers, such as one that moves cells
    }
    GraphRows & rows = t_rows;
    rows.adapters    = t_adapters;
    find_tokens(keys, *t_adapters, rows.tokens);
    find_outputs(output_ids(graph), rows.tokens, rows.outputs);
    rows.tokens.sort(t_adapters->n_sets);
    rows.outputs.sort(t_adapters->n_sets);
    rows.inner.resize(std::max(rows.inner.size(), inner_size(graph, rows)));
    return rows.tokens.rows.empty() ? nullptr : &rows;
}
