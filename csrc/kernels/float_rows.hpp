// What a register of sums of products of floats holds: the eight lanes of one row of weights, or of two.
#pragma once

#include "floats8.hpp"

namespace pyg::kernels {

struct OneRow {
    using Vector = Floats8;

    static constexpr int N            = 1;
    static constexpr int MOST_COLUMNS = 4;  // that a block has

    // Registers of weights in a block of so many columns. Twelve results fill the registers, those of NEON, which are
    // half as wide and twice as many, too.
    static constexpr int registers_for(int n_columns) { return n_columns == 1 ? 8 : 12 / n_columns; }

    template <typename Value>
    static Floats8 weights(const Value * const (&rows)[N], int64_t i) {
        return Floats8::load(rows[0] + i);
    }

    static Floats8 activations(const float * x) { return Floats8::load(x); }

    static void store_results(float * to, Floats8 sums) { *to = sum_of(sums); }
};

#ifdef __AVX512F__
struct TwoRows {
    using Vector = Floats16;

    static constexpr int N            = 2;
    static constexpr int MOST_COLUMNS = 8;

    // Few columns wait for weights from memory, which come more slowly when they are read in more places at once.
    static constexpr int registers_for(int n_columns) { return n_columns == MOST_COLUMNS ? 3 : 4; }

    template <typename Value>
    static Floats16 weights(const Value * const (&rows)[N], int64_t i) {
        return Floats16::load_halves(rows[0] + i, rows[1] + i);
    }

    static Floats16 activations(const float * x) { return Floats16::twice(x); }

    static void store_results(float * to, Floats16 sums) {
        to[0] = sum_of(lower_half(sums));
        to[1] = sum_of(upper_half(sums));
    }
};

using WidestRows = TwoRows;
#else
using WidestRows = OneRow;
#endif

}  // namespace pyg::kernels
