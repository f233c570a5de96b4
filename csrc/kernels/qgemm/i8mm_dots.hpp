// Products of bytes where an instruction multiplies two rows of eight weights with two columns of eight activations:
// for tiles, whose columns come in pairs. Sums are those of dot4_bytes.hpp, since integers are exact.
#pragma once

#include "kernels/qgemm/dot_products.hpp"

namespace pyg::kernels {

// Puts the four values of a row in one step, and those in the next, side by side, for `n_steps` of a tile.
inline void pair_steps(uint8_t (*values)[64], int n_steps) {
    for (int step = 0; step < n_steps; step += 2) {
        const Ints first = Ints::load_bits(values[step]), second = Ints::load_bits(values[step + 1]);
        side_by_side(first.a, second.a).store(values[step]);
        side_by_side(first.b, second.b).store(values[step + 1]);
    }
}

// Adds a run of steps of a tile, put in pairs, to the sums of N columns.
template <class Type, int N>
PYG_INLINE inline void add_pairs(const Tile & tile, int first_step, Columns<Type, N> columns, Ints (&sums)[N]) {
    constexpr int RUN = steps_before_widening<Type>();
    static_assert(N % 2 == 0 && RUN % 2 == 0);
    VectorPair<Ints> pairs[N / 2];  // for two columns each
    unroll<N / 2>([&](auto m) PYG_INLINE { pairs[m] = VectorPair<Ints>::set1(0); });
    unroll<RUN / 2>([&](auto i) PYG_INLINE {
        const int              step  = first_step + 2 * i;
        const VectorPair<Ints> steps = VectorPair<Ints>::load_bits(tile.values[step]);
        unroll<N / 2>([&](auto m) PYG_INLINE {
            const int8x8_t first  = vld1_s8(columns[2 * m]->q + step * Type::Dots::STEP);
            const int8x8_t second = vld1_s8(columns[2 * m + 1]->q + step * Type::Dots::STEP);
            pairs[m]              = multiply_two_rows(pairs[m], steps, vcombine_s8(first, second));
        });
    });
    unroll<N / 2>([&](auto m) PYG_INLINE {
        sums[2 * m]     = add(sums[2 * m], column_of<0>(pairs[m]));
        sums[2 * m + 1] = add(sums[2 * m + 1], column_of<1>(pairs[m]));
    });
}

}  // namespace pyg::kernels
