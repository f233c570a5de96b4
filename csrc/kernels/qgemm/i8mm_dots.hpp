// Products of bytes where an instruction multiplies two rows of eight weights with two columns of eight activations:
// for tiles, whose columns come in pairs. Sums are those of dot4_bytes.hpp, since integers are exact.
#pragma once

#include "kernels/qgemm/dot_products.hpp"

namespace pyg::kernels {

// Puts the four values of a row in one step, and those in the next, side by side, for `n_steps` of a tile.
inline void pair_steps(uint8_t (*values)[64], int n_steps) {
    for (int step = 0; step < n_steps; step += 2) {
        const Ints first = load(values[step]), second = load(values[step + 1]);
        store(values[step], side_by_side(first.a, second.a, first.b, second.b));
        store(values[step + 1], side_by_side(first.c, second.c, first.d, second.d));
    }
}

// Adds a run of steps of a tile, put in pairs, to the sums of N columns.
template <class Type, int N>
PYG_INLINE inline void add_pairs(const Tile & tile, int first_step, Columns<Type, N> columns, Ints (&sums)[N]) {
    constexpr int RUN = steps_before_widening<Type>();
    static_assert(N % 2 == 0 && RUN % 2 == 0);
    PairSums pairs[N / 2];
    unroll<N / 2>([&](auto m) PYG_INLINE { pairs[m] = no_pair_sums(); });
    unroll<RUN / 2>([&](auto i) PYG_INLINE {
        const int  step   = first_step + 2 * i;
        const Ints first  = load(tile.values[step]);
        const Ints second = load(tile.values[step + 1]);
        unroll<N / 2>([&](auto m) PYG_INLINE {
            add_products_of_eight(pairs[m], first, second, columns[2 * m]->q + step * Type::Dots::STEP,
                                  columns[2 * m + 1]->q + step * Type::Dots::STEP);
        });
    });
    unroll<N / 2>([&](auto m) PYG_INLINE {
        sums[2 * m]     = add(sums[2 * m], first_column(pairs[m]));
        sums[2 * m + 1] = add(sums[2 * m + 1], second_column(pairs[m]));
    });
}

}  // namespace pyg::kernels
