// Rows of weights that are floats times columns of activations, block by block.
//
// Each result is the sum of partial sums, one for each lane of a vector, which go through the row from its beginning to
// its end; what is left of the row is added last. So a result is the same bits from every shape of block below and
// wherever the work was cut. With activations of 32 bits there are eight lanes, on every instruction set.
#pragma once

#include "kernels/gemm/float_accumulators.hpp"
#include "kernels/gemm/work_item.hpp"
#include "kernels/simd/unrolled.hpp"

#include <cmath>

namespace pyg::kernels {

inline float to_float(float x) { return x; }

// `Value` is what a row of weights has: float, ggml_fp16_t or ggml_bf16_t.
template <typename Value>
const Value * row_of(const Piece & piece, int64_t row, size_t stride) {
    return reinterpret_cast<const Value *>(piece.weights + row * stride);
}

// Computes a block of results, of rows with `n` values. Not inlined: among other code its sums would not all be kept in
// registers.
template <class Rows, typename Value, int n_registers, int n_columns>
PYG_ALONE void compute_block(const Piece & piece, size_t stride, int64_t n, int64_t row, int64_t column) {
    using Activation = typename Rows::Activation;
    using Vector     = typename Rows::Vector;
    using Sums       = typename Rows::Sums;
    const Value *      weights[n_registers][Rows::N];
    const Activation * columns[n_columns];
    Sums               sums[n_registers][n_columns];
    unrolled<n_columns>(
        [&](auto c) PYG_INLINE { columns[c] = reinterpret_cast<const Activation *>(piece.columns[column + c]); });
    unrolled<n_registers>([&](auto r) PYG_INLINE {
        unrolled<Rows::N>([&](auto i)
                              PYG_INLINE { weights[r][i] = row_of<Value>(piece, row + r * Rows::N + i, stride); });
        unrolled<n_columns>([&](auto c) PYG_INLINE { sums[r][c] = Sums::everywhere(0); });
    });
    const int64_t in_vectors = n - n % Rows::STEP;
    for (int64_t i = 0; i < in_vectors; i += Rows::STEP) {
        if constexpr (n_columns <= n_registers) {
            Vector x[n_columns];
            unrolled<n_columns>([&](auto c) PYG_INLINE { x[c] = Rows::activations(columns[c] + i); });
            unrolled<n_registers>([&](auto r) PYG_INLINE {
                Vector w = Rows::weights(weights[r], i);
                keep(w);
                unrolled<n_columns>([&](auto c) PYG_INLINE { sums[r][c] = multiply_add(w, x[c], sums[r][c]); });
            });
        } else {
            Vector w[n_registers];
            unrolled<n_registers>([&](auto r) PYG_INLINE { w[r] = Rows::weights(weights[r], i); });
            unrolled<n_columns>([&](auto c) PYG_INLINE {
                Vector x = Rows::activations(columns[c] + i);
                keep(x);
                unrolled<n_registers>([&](auto r) PYG_INLINE { sums[r][c] = multiply_add(w[r], x, sums[r][c]); });
            });
        }
    }
    unrolled<n_columns>([&](auto c) PYG_INLINE {
        unrolled<n_registers>([&](auto r) PYG_INLINE {
            float * const results = piece.results[column + c] + row + r * Rows::N;
            Rows::store_results(results, sums[r][c]);
            for (int64_t i = in_vectors; i < n; ++i) {
                unrolled<Rows::N>([&](auto which) PYG_INLINE {
                    results[which] = std::fma(to_float(weights[r][which][i]), to_float(columns[c][i]), results[which]);
                });
            }
        });
    });
}

// Computes some columns of a piece: blocks of many rows, and the other rows one by one.
template <class Rows, typename Value, int n_columns>
void compute_columns(const Piece & piece, size_t stride, int64_t n, int64_t column) {
    constexpr int n_registers = Rows::registers_for(n_columns);
    int64_t       row         = 0;
    for (; row + n_registers * Rows::N <= piece.n_rows; row += n_registers * Rows::N) {
        compute_block<Rows, Value, n_registers, n_columns>(piece, stride, n, row, column);
    }
    for (; row < piece.n_rows; ++row) {
        compute_block<typename Rows::SingleRow, Value, 1, n_columns>(piece, stride, n, row, column);
    }
}

// Computes the columns from `column` on, as many at a time as a block may have, and those that are left fewer at a
// time.
template <class Rows, typename Value, int at_once>
void compute_columns_from(int64_t column, const Piece & piece, size_t stride, int64_t n) {
    for (; column + at_once <= piece.n_columns; column += at_once) {
        compute_columns<Rows, Value, at_once>(piece, stride, n, column);
    }
    if constexpr (at_once > 1) {
        compute_columns_from<Rows, Value, at_once == 8 ? 4 : at_once - 1>(column, piece, stride, n);
    }
}

// Computes a piece whose rows lie `stride` bytes apart and have `n` values.
template <typename Value, class Rows = WidestRows>
void compute_piece(const Piece & piece, size_t stride, int64_t n) {
    compute_columns_from<Rows, Value, Rows::MOST_COLUMNS>(0, piece, stride, n);
}

}  // namespace pyg::kernels
