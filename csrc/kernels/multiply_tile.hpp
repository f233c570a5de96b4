// A tile of weights times many columns of activations: unpacked once for all of them.
#pragma once

#include "dot_sums.hpp"
#ifdef PYG_DOTS_OF_EIGHT
#    include "dots_of_eight.hpp"
#endif

namespace pyg::kernels {

// Takes steps of a part of a block and writes them down instead of adding them up.
template <class Type, int PART>
struct WrittenSteps {
    uint8_t (*values)[64];  // of the block

    template <int I, int STEP>
    void add(const Ints & weights) {
        store(values[Type::segment_of(PART, I) * steps_of_segment<Type>() + STEP], weights);
    }
};

// Makes a group's block part of a tile.
template <class Type>
void unpack_block(const uint8_t * block, Tile & tile, int b) {
    uint8_t (*const values)[64] = tile.values + b * Type::BLOCK / Type::Dots::STEP;
    Type::factors(block, tile.factors, b);
    unrolled<Type::PARTS>([&](auto part) {
        WrittenSteps<Type, part> steps{values};
        ask_ahead<Type, part>(block);
        add_units<Type, part>(block, steps, std::make_integer_sequence<int, Type::UNITS>());
    });
#ifdef PYG_DOTS_OF_EIGHT
    put_in_pairs(values, Type::BLOCK / Type::Dots::STEP);
#endif
}

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
