// MUL_MAT_ID: each row of activations is multiplied with the experts that its token has chosen.
//
// A choice has its index among the choices of all rows, row by row; that is also its row of the result.
#pragma once

#include "ggml-impl.h"

#include <algorithm>
#include <cstdint>

namespace pyg::kernels {

inline int32_t expert_of(const ggml_tensor * op, int64_t choice) {
    const ggml_tensor * const ids = op->src[2];
    const char * const        at  = static_cast<const char *>(ids->data);
    return *reinterpret_cast<const int32_t *>(at + choice / ids->ne[0] * ids->nb[1] + choice % ids->ne[0] * ids->nb[0]);
}

// A row of activations, by its index in the second and third dimension.
struct ActivationRow {
    int64_t i1, i2;
};

// The choices of a token may share a row of activations.
inline ActivationRow row_of(const ggml_tensor * op, int64_t choice) {
    const int64_t n_used = op->src[2]->ne[0];
    return {choice % n_used % op->src[1]->ne[1], choice / n_used};
}

// The experts that are chosen by at least one row.
struct ActiveExperts {
    int64_t * n;
    int64_t * expert;  // [n]
    int64_t * first;   // [n + 1] start of its choices

    // `numbers` has count() elements.
    ActiveExperts(const ggml_tensor * op, int64_t * numbers)
        : n(numbers), expert(n + 1), first(expert + op->src[0]->ne[2]) {}

    static int64_t count(const ggml_tensor * op) { return 2 + 2 * op->src[0]->ne[2]; }
};

// Find the active experts and call set(index, choice) for each choice, grouped by expert.
template <class Set>
void group_by_expert(const ggml_tensor * op, const ActiveExperts & chosen, const Set & set) {
    const int64_t n_experts = op->src[0]->ne[2];
    const int64_t n_choices = ggml_nrows(op);
    std::fill_n(chosen.first, n_experts + 1, 0);
    for (int64_t i = 0; i < n_choices; ++i) {
        const int32_t expert = expert_of(op, i);
        GGML_ASSERT(expert >= 0 && expert < n_experts);
        ++chosen.first[expert + 1];
    }
    for (int64_t e = 0; e < n_experts; ++e) {
        chosen.first[e + 1] += chosen.first[e];
    }
    for (int64_t i = 0; i < n_choices; ++i) {
        set(chosen.first[expert_of(op, i)]++, i);
    }
    *chosen.n     = 0;
    int64_t begin = 0;
    for (int64_t e = 0; e < n_experts; ++e) {
        const int64_t end = chosen.first[e];  // start of the next one
        if (begin < end) {
            chosen.expert[*chosen.n]    = e;
            chosen.first[(*chosen.n)++] = begin;
        }
        begin = end;
    }
    chosen.first[*chosen.n] = n_choices;
}

}  // namespace pyg::kernels
