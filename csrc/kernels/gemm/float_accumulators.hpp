// Accumulators of the float micro-kernel: eight lanes of one row of weights, or of two rows; for BF16 dot products,
// sixteen lanes of one row.
#pragma once

#include "kernels/simd/vector.hpp"

namespace pyg::kernels {

struct OneRow {
    using Activation = float;
    using Vector     = Floats8;  // of weights or activations
    using Sums       = Floats8;
    using SingleRow  = OneRow;  // for rows that do not fill a vector: the same bits

    static constexpr int STEP        = Floats8::LANES;  // values of a row in a vector
    static constexpr int N           = 1;               // rows in a vector
    static constexpr int MAX_COLUMNS = 4;               // that a block has

    // Registers of weights in a block of so many columns. Twelve results fill the registers, those of NEON, which are
    // half as wide and twice as many, too.
    static constexpr int registers_for(int n_columns) { return n_columns == 1 ? 8 : 12 / n_columns; }

    template <typename Value>
    static Floats8 weights(const Value * const (&rows)[N], int64_t i) {
        return Floats8::load(rows[0] + i);
    }

    static Floats8 activations(const float * x) { return Floats8::load(x); }

    static void store_results(float * to, Floats8 sums) { *to = reduce_add(sums); }
};

#ifdef PYG_AVX512
struct TwoRows {
    using Activation = float;
    using Vector     = Floats16;
    using Sums       = Floats16;
    using SingleRow  = OneRow;

    static constexpr int STEP        = Floats8::LANES;
    static constexpr int N           = 2;
    static constexpr int MAX_COLUMNS = 8;

    // With few columns, memory is the limit, and reading from more streams at once is slower.
    static constexpr int registers_for(int n_columns) { return n_columns == MAX_COLUMNS ? 3 : 4; }

    template <typename Value>
    static Floats16 weights(const Value * const (&rows)[N], int64_t i) {
        return Floats16::load_halves(rows[0] + i, rows[1] + i);
    }

    static Floats16 activations(const float * x) { return Floats16::twice(x); }

    static void store_results(float * to, Floats16 sums) {
        to[0] = reduce_add(lower_half(sums));
        to[1] = reduce_add(upper_half(sums));
    }
};

using WidestRows = TwoRows;
#else
using WidestRows = OneRow;
#endif

#ifdef PYG_BF16_PAIRS
// BF16 weights and activations: an instruction adds the products of two values to each lane.
struct RowOfPairs {
    using Activation = ggml_bf16_t;
    using Vector     = Bf16Pairs;
    using Sums       = Floats16;
    using SingleRow  = RowOfPairs;

    static constexpr int STEP        = Bf16Pairs::N;
    static constexpr int N           = 1;
    static constexpr int MAX_COLUMNS = 8;

    static constexpr int registers_for(int n_columns) { return n_columns == MAX_COLUMNS ? 3 : n_columns == 1 ? 8 : 4; }

    static Bf16Pairs weights(const ggml_bf16_t * const (&rows)[N], int64_t i) { return Bf16Pairs::load(rows[0] + i); }

    static Bf16Pairs activations(const ggml_bf16_t * x) { return Bf16Pairs::load(x); }

    static void store_results(float * to, Floats16 sums) { *to = reduce_add(lower_half(sums) + upper_half(sums)); }
};
#endif

}  // namespace pyg::kernels
