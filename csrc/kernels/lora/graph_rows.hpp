// The rows of a graph that have adapters.
#pragma once

#include "ggml.h"
#include "kernels/lora/row_adapters.h"

#include <cstdint>
#include <vector>

namespace pyg::kernels {

// Rows of one kind, with the set of adapters of each.
struct RowSets {
    std::vector<int32_t> set_of;  // by row, -1: none
    std::vector<int32_t> rows;    // that have a set, ordered by it
    std::vector<int32_t> first;   // [n_sets + 1] start of a set's rows

    int64_t n_rows() const { return static_cast<int64_t>(set_of.size()); }
    void    sort(int32_t n_sets);
};

struct GraphRows {
    const pyg_row_adapters * adapters;
    RowSets                  tokens;   // all rows of the micro-batch
    RowSets                  outputs;  // those with output, which the last layer goes on with
    std::vector<float>       inner;    // A times rows of one product: nodes are computed one after another

    int32_t terms(const ggml_tensor * weights, int32_t set, const pyg_lora_term ** terms_of) const {
        return adapters->terms(adapters->owner, weights, set, terms_of);
    }

    // The rows of a product: of all tokens, or of the outputs.
    const RowSets & rows_of(const ggml_tensor * op) const;
};

// Tokens that a product computes: with experts, each has several rows of the result.
inline int64_t n_tokens_of(const ggml_tensor * op) { return op->op == GGML_OP_MUL_MAT_ID ? op->ne[2] : ggml_nrows(op); }

}  // namespace pyg::kernels
