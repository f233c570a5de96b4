// Float micro-kernel: a block of rows of weights times columns of activations.
//
// A result is the sum of partial sums, one per vector lane, which run through the row from start to end; the remainder
// of the row is added last. So the bits depend neither on the shape of the block nor on the work item. With 32-bit
// activations there are eight lanes on every instruction set.
#pragma once

#include "kernels/gemm/float_accumulators.hpp"
#include "kernels/gemm/work_item.hpp"
#include "kernels/simd/unroll.hpp"

#include <cmath>

namespace pyg::kernels {

inline float to_float(float x) { return x; }

// Compute a block of results, of rows with `n` values. Not inlined, so that all sums stay in registers.
// `Value` is the type of the weights: float, ggml_fp16_t or ggml_bf16_t.
template <class Rows, typename Value, int n_registers, int n_columns>
PYG_NOINLINE void compute_block(const WorkItem & item, size_t stride, int64_t n, int64_t row, int64_t column) {
    using Activation = typename Rows::Activation;
    using Vector     = typename Rows::Vector;
    using Sums       = typename Rows::Sums;
    const Value *      weights[n_registers][Rows::N];
    const Activation * columns[n_columns];
    Sums               sums[n_registers][n_columns];
    unroll<n_columns>([&](auto c)
                          PYG_INLINE { columns[c] = reinterpret_cast<const Activation *>(item.columns[column + c]); });
    unroll<n_registers>([&](auto r) PYG_INLINE {
        unroll<Rows::N>([&](auto i) PYG_INLINE {
            weights[r][i] = reinterpret_cast<const Value *>(item.weights + (row + r * Rows::N + i) * stride);
        });
        unroll<n_columns>([&](auto c) PYG_INLINE { sums[r][c] = Sums::set1(0); });
    });
    const int64_t in_vectors = n - n % Rows::STEP;
    for (int64_t i = 0; i < in_vectors; i += Rows::STEP) {
        if constexpr (n_columns <= n_registers) {
            Vector x[n_columns];
            unroll<n_columns>([&](auto c) PYG_INLINE { x[c] = Rows::activations(columns[c] + i); });
            unroll<n_registers>([&](auto r) PYG_INLINE {
                Vector w = Rows::weights(weights[r], i);
                keep_in_register(w);
                unroll<n_columns>([&](auto c) PYG_INLINE { sums[r][c] = multiply_add(w, x[c], sums[r][c]); });
            });
        } else {
            Vector w[n_registers];
            unroll<n_registers>([&](auto r) PYG_INLINE { w[r] = Rows::weights(weights[r], i); });
            unroll<n_columns>([&](auto c) PYG_INLINE {
                Vector x = Rows::activations(columns[c] + i);
                keep_in_register(x);
                unroll<n_registers>([&](auto r) PYG_INLINE { sums[r][c] = multiply_add(w[r], x, sums[r][c]); });
            });
        }
    }
    float * results[n_columns];
    unroll<n_columns>([&](auto c) PYG_INLINE { results[c] = item.results[column + c] + row; });
    Rows::store(results, sums);
    for (int64_t i = in_vectors; i < n; ++i) {
        for (int c = 0; c < n_columns; ++c) {
            for (int r = 0; r < n_registers * Rows::N; ++r) {
                const float weight = to_float(weights[r / Rows::N][r % Rows::N][i]);
                results[c][r]      = std::fma(weight, to_float(columns[c][i]), results[c][r]);
            }
        }
    }
}

// Compute some columns of an item: blocks of many rows, then the remaining rows one by one.
template <class Rows, typename Value, int n_columns>
void compute_columns(const WorkItem & item, size_t stride, int64_t n, int64_t column) {
    constexpr int n_registers = Rows::registers_for(n_columns);
    int64_t       row         = 0;
    for (; row + n_registers * Rows::N <= item.n_rows; row += n_registers * Rows::N) {
        compute_block<Rows, Value, n_registers, n_columns>(item, stride, n, row, column);
    }
    for (; row < item.n_rows; ++row) {
        compute_block<typename Rows::SingleRow, Value, 1, n_columns>(item, stride, n, row, column);
    }
}

// Compute the columns from `column` on in the widest blocks that fit.
template <class Rows, typename Value, int columns_per_block>
void compute_columns_from(int64_t column, const WorkItem & item, size_t stride, int64_t n) {
    for (; column + columns_per_block <= item.n_columns; column += columns_per_block) {
        compute_columns<Rows, Value, columns_per_block>(item, stride, n, column);
    }
    if constexpr (columns_per_block > 1) {
        compute_columns_from<Rows, Value, columns_per_block == 8 ? 4 : columns_per_block - 1>(column, item, stride, n);
    }
}

// Compute an item whose rows are `stride` bytes apart and have `n` values.
template <typename Value, class Rows = WidestRows>
void compute_item(const WorkItem & item, size_t stride, int64_t n) {
    compute_columns_from<Rows, Value, Rows::MAX_COLUMNS>(0, item, stride, n);
}

}  // namespace pyg::kernels
