// A tile of weights, unpacked once, times columns of activations.
#pragma once

#include "kernels/qgemm/dot_products.hpp"
#ifdef PYG_DOTS_OF_EIGHT
#    include "kernels/qgemm/i8mm_dots.hpp"
#endif

namespace pyg::kernels {

// Adds to `totals` segment `s` of a tile times N columns.
template <class Type, int N>
PYG_INLINE inline void multiply_segment(const Tile & tile, int s, Columns<Type, N> columns, Ints (&totals)[N]) {
    constexpr int N_STEPS = steps_of_segment<Type>(), RUN = run_of<Type>();
    unrolled<N_STEPS / RUN>([&](auto run) PYG_INLINE {
        Ints sums[N];
        begin_sums<Type, N>(columns, s, sums);
#ifdef PYG_DOTS_OF_EIGHT
        add_pairs<Type, N>(tile, s * N_STEPS + run * RUN, columns, sums);
#else
        unrolled<RUN>([&](auto i) PYG_INLINE {
            const int step = run * RUN + i;
            add_step<Type, N>(columns, s, step, load(tile.values[s * N_STEPS + step]), sums);
        });
#endif
        end_sums<Type, N>(tile.factors, s, sums, totals);
    });
}

// Adds a tile times N columns to `results`, [N][16 rows]; column n is number which[n] of `columns`.
template <class Type, int N>
PYG_ALONE void multiply_tile(const Tile & tile, int n_blocks, const ColumnTileFor<Type> * columns,
                             const int32_t * which, float (*results)[GROUP_ROWS]) {
    constexpr int               N_SEGMENTS = segments_of_block<Type>();
    const ColumnTileFor<Type> * at[N];
    Floats                      sums[N];
    unrolled<N>([&](auto n) PYG_INLINE {
        at[n]   = columns + which[n];
        sums[n] = load_floats(results[n]);
    });
    for (int b = 0; b < n_blocks; ++b) {
        Ints totals[N];
        unrolled<N>([&](auto n) PYG_INLINE { totals[n] = zero(); });
        for (int s = b * N_SEGMENTS; s < (b + 1) * N_SEGMENTS; ++s) {
            multiply_segment<Type, N>(tile, s, at, totals);
        }
        end_block<Type, N>(tile.factors, b, at, totals, sums);
    }
    unrolled<N>([&](auto n) PYG_INLINE { store(results[n], sums[n]); });
}

}  // namespace pyg::kernels
