// Micro-kernel: an unpacked tile of weights times N columns of activations.
#pragma once

#include "kernels/qgemm/dot_products.hpp"
#ifdef PYG_DOT8
#    include "kernels/qgemm/i8mm_dots.hpp"
#endif

namespace pyg::kernels {

// Add sub-block `s` of a tile times N columns to `totals`.
template <class Type, int N>
PYG_INLINE inline void multiply_sub_block(const Tile & tile, int s, Columns<Type, N> columns, Ints (&totals)[N]) {
    constexpr int N_STEPS = steps_per_sub_block<Type>(), RUN = steps_before_widening<Type>();
    unroll<N_STEPS / RUN>([&](auto run) PYG_INLINE {
        Ints sums[N];
        begin_sums<Type, N>(columns, s, sums);
#ifdef PYG_DOT8
        add_pairs<Type, N>(tile, s * N_STEPS + run * RUN, columns, sums);
#else
        unroll<RUN>([&](auto i) PYG_INLINE {
            const int step = run * RUN + i;
            add_step<Type, N>(columns, s, step, Ints::load_bits(tile.values[s * N_STEPS + step]), sums);
        });
#endif
        end_sums<Type, N>(tile.scales, s, sums, totals);
    });
}

// Add a tile times N columns to `results`, [N][16 rows]; column n is columns[which[n]].
template <class Type, int N>
PYG_NOINLINE void micro_kernel(const Tile & tile, int n_blocks, const QuantizedColumnFor<Type> * columns,
                               const int32_t * which, float (*results)[GROUP_ROWS]) {
    constexpr int                    N_SUB_BLOCKS = sub_blocks_per_block<Type>();
    const QuantizedColumnFor<Type> * at[N];
    Floats                           sums[N];
    unroll<N>([&](auto n) PYG_INLINE {
        at[n]   = columns + which[n];
        sums[n] = Floats::load(results[n]);
    });
    for (int b = 0; b < n_blocks; ++b) {
        Ints totals[N];
        unroll<N>([&](auto n) PYG_INLINE { totals[n] = zero(); });
        for (int s = b * N_SUB_BLOCKS; s < (b + 1) * N_SUB_BLOCKS; ++s) {
            multiply_sub_block<Type, N>(tile, s, at, totals);
        }
        end_block<Type, N>(tile.scales, b, at, totals, sums);
    }
    unroll<N>([&](auto n) PYG_INLINE { sums[n].store(results[n]); });
}

}  // namespace pyg::kernels
