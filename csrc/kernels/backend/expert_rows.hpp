// Products by expert: each row of activations meets those matrices of the weights that it has chosen.
//
// A choice is numbered by its place among all rows' choices, one row after the other. That is also the row of the
// product which it computes.
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

// A row of activations by its place in the second and the third dimension.
struct RowOfChoice {
    int64_t i1, i2;
};

// The choices of a token may have rows of their own, or share some.
inline RowOfChoice row_of(const ggml_tensor * op, int64_t choice) {
    const int64_t n_used = op->src[2]->ne[0];
    return {choice % n_used % op->src[1]->ne[1], choice / n_used};
}

// The experts that have choices, of which there may be few among many.
struct ChosenExperts {
    int64_t * n;
    int64_t * expert;  // [n]
    int64_t * first;   // [n] the first place of its choices; and one after the last

    // Takes count() numbers.
    ChosenExperts(const ggml_tensor * op, int64_t * numbers)
        : n(numbers), expert(n + 1), first(expert + op->src[0]->ne[2]) {}

    static int64_t count(const ggml_tensor * op) { return 2 + 2 * op->src[0]->ne[2]; }
};

// Finds the chosen experts, and calls set(place, choice) for each choice: those of an expert lie together, in the order
// of their numbers.
template <class Set>
void sort_choices(const ggml_tensor * op, const ChosenExperts & chosen, const Set & set) {
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
        const int64_t end = chosen.first[e];  // where the next one begins
        if (begin < end) {
            chosen.expert[*chosen.n]    = e;
            chosen.first[(*chosen.n)++] = begin;
        }
        begin = end;
    }
    chosen.first[*chosen.n] = n_choices;
}

}  // namespace pyg::kernels
