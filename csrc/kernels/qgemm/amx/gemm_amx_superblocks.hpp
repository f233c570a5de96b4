// AMX GEMM for super-blocks of 256 values: a block is a tile and takes several steps.
#pragma once

#include "kernels/qgemm/amx/column_sets.hpp"

namespace pyg::kernels {

constexpr int STEPS_OF_TILE = TILE_K / amx::ROW_BYTES;

// Sums of a block for 16 columns, as the registers leave them.
struct alignas(64) BlockSums {
    int32_t low[amx::COLUMNS][GROUP_ROWS];
    int32_t high[amx::COLUMNS][GROUP_ROWS];  // of plane 1
};

// Adds the sums of a block to the results of N columns, from number `first` of a set on.
template <class Type, int N>
PYG_INLINE inline void add_sums(const BlockScales & scales, const BlockSums & sums, const ColumnSet<Type> & set,
                                int first) {
    const QuantizedColumnFor<Type> * at[N];
    Ints                             totals[N];
    Floats                           results[N];
    unroll<N>([&](auto n) PYG_INLINE {
        at[n]           = set.columns + first + n;
        const Ints high = Ints::load_bits(sums.high[first + n]);
        totals[n]       = add(Ints::load_bits(sums.low[first + n]), shift_left_lanes<PlanesOf<Type>::RADIX_BITS>(high));
    });
    set.load_results(first, results);
    end_block<Type, N>(scales, 0, at, totals, results);
    set.store_results(first, results);
}

// A block times one or two sets of columns: summed, and not yet part of the results.
template <class Type>
struct Summed {
    const BlockScales * scales = nullptr;
    ColumnSet<Type>     sets[2];
    int                 n_sets = 0;
    BlockSums           sums[2];

    // Adds the sums of a share of the columns, one for each step of the next block.
    PYG_INLINE void add_share(int step) const {
        constexpr int N = amx::COLUMNS / STEPS_OF_TILE;
        for (int i = 0; i < n_sets; ++i) {
            add_sums<Type, N>(*scales, sums[i], sets[i], step * N);
        }
    }
};

// Writes the sums of SETS sets, and meanwhile adds to their results what was summed before.
template <class Type, int SETS>
PYG_NOINLINE void sum_sets(const Planes<Type> & planes, const Summed<Type> & before, Summed<Type> & summed) {
    unroll<2 * SETS>([&](auto i) PYG_INLINE { amx::clear<amx::SUMS + i>(); });
    for (int step = 0; step < STEPS_OF_TILE; ++step) {
        const int k = step * amx::ROW_BYTES;
        amx::load<amx::WEIGHTS>(planes.values[0][k / 4], amx::ROW_BYTES);
        amx::load<amx::WEIGHTS + 1>(planes.values[1][k / 4], amx::ROW_BYTES);
        unroll<SETS>([&](auto i) PYG_INLINE { add_values<Type, i>(summed.sets[i], k); });
        before.add_share(step);
    }
    unroll<SETS>([&](auto i) PYG_INLINE {
        amx::store<amx::SUMS + 2 * i>(summed.sums[i].low);
        amx::store<amx::SUMS + 2 * i + 1>(summed.sums[i].high);
    });
    summed.scales = &planes.scales;
    summed.n_sets = SETS;
}

// Multiplies `k` values of 16 rows with all sets.
template <class Type>
void multiply_group_of_superblocks(const uint8_t * group, int64_t k, const QuantizedColumnFor<Type> * columns,
                                   int64_t stride, ColumnSets<Type> & sets) {
    Planes<Type> planes[2];  // what was summed before still needs its factors
    Summed<Type> summed[2];
    int          turn = 0;
    for (int64_t tile = 0; tile < k / TILE_K; ++tile, columns += stride, group += block_bytes<Type>()) {
        Planes<Type> & here = planes[tile % 2];
        write_planes<Type>(group, 1, here);
        for (int i = 0; i < sets.n(); i += 2, turn ^= 1) {
            Summed<Type> & now = summed[turn];
            now.sets[0]        = sets.take(i, columns);
            if (i + 1 < sets.n()) {
                now.sets[1] = sets.take(i + 1, columns);
                sum_sets<Type, 2>(here, summed[turn ^ 1], now);
            } else {
                sum_sets<Type, 1>(here, summed[turn ^ 1], now);
            }
        }
    }
    for (int step = 0; step < STEPS_OF_TILE; ++step) {
        summed[turn ^ 1].add_share(step);
    }
}

}  // namespace pyg::kernels
