// Rows of weights that are floats times columns of activations, block by block.
//
// Each result is the sum of eight partial sums, one for each lane of a vector, which go through the row from its
// beginning to its end; what is left of the row is added last. So a result is the same bits from every shape of block
// below, wherever the work was cut, and on every instruction set.
#pragma once

#include "floats8.hpp"
#include "piece.hpp"
#include "unrolled.hpp"

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
template <typename Value, int n_rows, int n_columns>
PYG_ALONE void compute_block(const Piece & piece, size_t stride, int64_t n, int64_t row, int64_t column) {
    const Value * weights[n_rows];
    const float * columns[n_columns];
    Floats8       sums[n_rows][n_columns];
    unrolled<n_columns>([&](auto c)
                            PYG_INLINE { columns[c] = reinterpret_cast<const float *>(piece.columns[column + c]); });
    unrolled<n_rows>([&](auto r) PYG_INLINE {
        weights[r] = row_of<Value>(piece, row + r, stride);
        unrolled<n_columns>([&](auto c) PYG_INLINE { sums[r][c] = Floats8::everywhere(0); });
    });
    const int64_t in_vectors = n - n % Floats8::LANES;
    for (int64_t i = 0; i < in_vectors; i += Floats8::LANES) {
        if constexpr (n_columns <= n_rows) {
            Floats8 x[n_columns];
            unrolled<n_columns>([&](auto c) PYG_INLINE { x[c] = Floats8::load(columns[c] + i); });
            unrolled<n_rows>([&](auto r) PYG_INLINE {
                Floats8 w = Floats8::load(weights[r] + i);
                keep(w);
                unrolled<n_columns>([&](auto c) PYG_INLINE { sums[r][c] = multiply_add(w, x[c], sums[r][c]); });
            });
        } else {
            Floats8 w[n_rows];
            unrolled<n_rows>([&](auto r) PYG_INLINE { w[r] = Floats8::load(weights[r] + i); });
            unrolled<n_columns>([&](auto c) PYG_INLINE {
                Floats8 x = Floats8::load(columns[c] + i);
                keep(x);
                unrolled<n_rows>([&](auto r) PYG_INLINE { sums[r][c] = multiply_add(w[r], x, sums[r][c]); });
            });
        }
    }
    unrolled<n_columns>([&](auto c) PYG_INLINE {
        unrolled<n_rows>([&](auto r) PYG_INLINE {
            float result = sum_of(sums[r][c]);
            for (int64_t i = in_vectors; i < n; ++i) {
                result = std::fma(to_float(weights[r][i]), columns[c][i], result);
            }
            piece.results[column + c][row + r] = result;
        });
    });
}

// Computes some columns of a piece: blocks of so many rows, and the other rows one by one.
template <typename Value, int n_rows, int n_columns>
void compute_columns(const Piece & piece, size_t stride, int64_t n, int64_t column) {
    int64_t row = 0;
    for (; row + n_rows <= piece.n_rows; row += n_rows) {
        compute_block<Value, n_rows, n_columns>(piece, stride, n, row, column);
    }
    for (; row < piece.n_rows; ++row) {
        compute_block<Value, 1, n_columns>(piece, stride, n, row, column);
    }
}

// Computes a piece whose rows lie `stride` bytes apart and have `n` values: four columns at a time, and the others
// together. Twelve results of a block fill the registers, those of NEON, which are half as wide and twice as many, too.
template <typename Value>
void compute_piece(const Piece & piece, size_t stride, int64_t n) {
    int64_t column = 0;
    for (; column + 4 <= piece.n_columns; column += 4) {
        compute_columns<Value, 3, 4>(piece, stride, n, column);
    }
    switch (piece.n_columns - column) {
    case 3:
        return compute_columns<Value, 4, 3>(piece, stride, n, column);
    case 2:
        return compute_columns<Value, 6, 2>(piece, stride, n, column);
    case 1:
        return compute_columns<Value, 8, 1>(piece, stride, n, column);
    default:
        return;
    }
}

}  // namespace pyg::kernels
