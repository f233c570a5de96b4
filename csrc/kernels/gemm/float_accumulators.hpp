// Accumulators of the float micro-kernel: eight lanes of one row of weights, or of two rows; for BF16 dot products,
// sixteen lanes of one row. `store` reduces those of a block to results, `to` its first row of each column.
#pragma once

#include "kernels/simd/unroll.hpp"
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

    template <int n_registers, int n_columns>
    PYG_INLINE static void store(float * const (&to)[n_columns], const Sums (&sums)[n_registers][n_columns]) {
        unroll<n_columns>([&](auto c) PYG_INLINE {
            unroll<n_registers>([&](auto r) PYG_INLINE { to[c][r] = reduce_add(sums[r][c]); });
        });
    }
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

    // In short rows, reducing each vector by itself takes a tenth of the time of the products.
    template <int n_registers, int n_columns>
    PYG_INLINE static void store(float * const (&to)[n_columns], const Sums (&sums)[n_registers][n_columns]) {
        static_assert(n_registers == 3 || n_registers == 4);
        unroll<n_columns>([&](auto c) PYG_INLINE {
            const Floats8 all = reduce_halves(sums[0][c], sums[1][c], sums[2][c], sums[n_registers - 1][c]);
            store_lanes(to[c], all, N * n_registers);
        });
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

    // As TwoRows, two columns at a time.
    template <int n_registers, int n_columns>
    PYG_INLINE static void store(float * const (&to)[n_columns], const Sums (&sums)[n_registers][n_columns]) {
        if constexpr (n_registers == 8) {
            static_assert(n_columns == 1);
            reduce_halves(add_halves(sums[0][0], sums[1][0]), add_halves(sums[2][0], sums[3][0]),
                          add_halves(sums[4][0], sums[5][0]), add_halves(sums[6][0], sums[7][0]))
                .store(to[0]);
        } else if constexpr (n_registers == 1) {
            unroll<n_columns>([&](auto c)
                                  PYG_INLINE { *to[c] = reduce_add(lower_half(sums[0][c]) + upper_half(sums[0][c])); });
        } else {
            static_assert(n_registers == 3 || n_registers == 4);
            unroll<(n_columns + 1) / 2>([&](auto half) PYG_INLINE {
                constexpr int c = 2 * half, next = c + 1 < n_columns ? c + 1 : c, last = n_registers - 1;
                const Floats8 all = reduce_halves(
                    add_halves(sums[0][c], sums[1][c]), add_halves(sums[2][c], sums[last][c]),
                    add_halves(sums[0][next], sums[1][next]), add_halves(sums[2][next], sums[last][next]));
                store_lanes(to[c], all, n_registers);
                store_lanes(to[next], swap_halves(all), n_registers);
            });
        }
    }
};
#endif

}  // namespace pyg::kernels
