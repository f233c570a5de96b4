// Scores of many queries with AVX-512: each lane is a cell, so that no sums of lanes are needed.
//
// The bits are those of score_four(): its eight lanes are eight sums here, which are added in the order of
// reduce_add().
#pragma once

#include "kernels/attention/attention_micro_kernel.hpp"

namespace pyg::kernels {

// Transpose the keys of a block of cells, so that one dimension of all cells is a row.
inline void transpose_keys(const float * const * keys, int64_t n_cells, int64_t n, float * columns) {
    for (int64_t first = 0; first < BLOCK; first += 8) {
        for (int64_t d = 0; d < n; d += 8) {
            Floats8 part[8];
            for (int64_t i = 0; i < 8; ++i) {
                part[i] = Floats8::load(keys[std::min(first + i, n_cells - 1)] + d);
            }
            transpose(part);
            for (int64_t i = 0; i < 8; ++i) {
                part[i].store(columns + (d + i) * BLOCK + first);
            }
        }
    }
}

// Scores of three queries for a block of cells, from `cell` on.
inline void score_columns(Query * const * queries, const float * columns, int64_t n, int64_t cell) {
    const float *const q0 = queries[0]->q, *const q1 = queries[1]->q, *const q2 = queries[2]->q;
    struct Sums {
        Floats16 a0, b0, a1, b1, a2, b2;
    };
    const auto add_sums = [](const Sums & x, const Sums & y) -> Sums {
        return {x.a0 + y.a0, x.b0 + y.b0, x.a1 + y.a1, x.b1 + y.b1, x.a2 + y.a2, x.b2 + y.b2};
    };
    const auto lane = [&](int64_t first) -> Sums {
        const Floats16 zero = Floats16::set1(0);
        Floats16       a0 = zero, b0 = zero, a1 = zero, b1 = zero, a2 = zero, b2 = zero;
        for (int64_t d = first; d < n; d += Floats8::LANES) {
            Floats16 a = Floats16::load(columns + d * BLOCK), b = Floats16::load(columns + d * BLOCK + 16);
            keep_in_register(a);
            keep_in_register(b);
            Floats16 one = Floats16::set1(q0[d]);
            a0           = multiply_add(one, a, a0);
            b0           = multiply_add(one, b, b0);
            one          = Floats16::set1(q1[d]);
            a1           = multiply_add(one, a, a1);
            b1           = multiply_add(one, b, b1);
            one          = Floats16::set1(q2[d]);
            a2           = multiply_add(one, a, a2);
            b2           = multiply_add(one, b, b2);
        }
        return {a0, b0, a1, b1, a2, b2};
    };
    const Sums even = add_sums(add_sums(lane(0), lane(4)), add_sums(lane(2), lane(6)));
    const Sums sums = add_sums(even, add_sums(add_sums(lane(1), lane(5)), add_sums(lane(3), lane(7))));
    sums.a0.store(queries[0]->weights + cell);
    sums.b0.store(queries[0]->weights + cell + 16);
    sums.a1.store(queries[1]->weights + cell);
    sums.b1.store(queries[1]->weights + cell + 16);
    sums.a2.store(queries[2]->weights + cell);
    sums.b2.store(queries[2]->weights + cell + 16);
}

}  // namespace pyg::kernels
