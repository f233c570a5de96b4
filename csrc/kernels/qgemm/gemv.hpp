// GEMV: weights times a few columns of activations while they are unpacked, which is faster than reading a tile again.
// With many more columns to come, the unpacked weights are also stored as a tile.
#pragma once

#include "kernels/qgemm/dot_products.hpp"
#ifdef PYG_DOT8
#    include "kernels/qgemm/i8mm_dots.hpp"
#endif

namespace pyg::kernels {

// Sub-blocks of a part whose accumulators fit into registers; the others are unpacked in another pass over the bytes.
template <class Type, int N>
constexpr int sub_blocks_in_registers() {
    constexpr int SUB_BLOCKS = sub_blocks_per_block<Type>() / Type::PARTS;
    constexpr int SUMS       = steps_per_sub_block<Type>() / steps_before_widening<Type>() * N;
    int           n          = std::clamp(ACCUMULATORS / SUMS, 1, SUB_BLOCKS);
    while (SUB_BLOCKS % n != 0) {
        --n;
    }
    return n;
}

// Accumulators of the sub-blocks of a part that pass TURN multiplies, as many for each as overflow requires. The values
// of other sub-blocks are skipped.
template <class Type, int TURN, int N, class Written>
struct SubBlockSums {
    static constexpr int SUB_BLOCKS = sub_blocks_in_registers<Type, N>();
    static constexpr int FIRST      = TURN * SUB_BLOCKS;
    static constexpr int RUN        = steps_before_widening<Type>();
    static constexpr int RUNS       = steps_per_sub_block<Type>() / RUN;

    Columns<Type, N> columns;
    const int64_t    first_sub_block;  // the block's first
    const int64_t    part;
    const Written    written;
    Ints             sums[SUB_BLOCKS][RUNS][N];

    PYG_INLINE SubBlockSums(Columns<Type, N> columns, int64_t first_sub_block, int64_t part, const Written & written)
        : columns(columns), first_sub_block(first_sub_block), part(part), written(written) {
        unroll<SUB_BLOCKS * RUNS>([&](auto i) PYG_INLINE {
            begin_sums<Type, N>(columns, sub_block(FIRST + i / RUNS), sums[i / RUNS][i % RUNS]);
        });
    }

    template <int I, int STEP>
    PYG_INLINE void add(const Ints & weights) {
        if constexpr (I >= FIRST && I < FIRST + SUB_BLOCKS) {
            written.template write<I, STEP>(part, weights);
            add_step<Type, N>(columns, sub_block(I), STEP, weights, sums[I - FIRST][STEP / RUN]);
        }
    }

    PYG_INLINE void end(const BlockScales & scales, Ints (&totals)[N]) {
        unroll<SUB_BLOCKS * RUNS>([&](auto i) PYG_INLINE {
            end_sums<Type, N>(scales, sub_block(FIRST + i / RUNS), sums[i / RUNS][i % RUNS], totals);
        });
    }

  private:
    PYG_INLINE int64_t sub_block(int i) const { return first_sub_block + Type::sub_block_of(part, i); }
};

// Discards unpacked weights.
struct NoTileWriter {
    NoTileWriter() = default;
    NoTileWriter(Tile &, int) {}

    template <int I, int STEP>
    void write(int64_t, const Ints &) const {}
    void end() const {}
};

// Stores unpacked weights as a block of a tile.
template <class Type>
struct TileWriter {
    uint8_t (*const values)[64];

    TileWriter(Tile & tile, int b) : values(tile.values + b * Type::BLOCK / Type::Dots::STEP) {}

    template <int I, int STEP>
    PYG_INLINE void write(int64_t part, const Ints & weights) const {
        weights.store(values[Type::sub_block_of(part, I) * steps_per_sub_block<Type>() + STEP]);
    }

    void end() const {
#ifdef PYG_DOT8
        pair_steps(values, Type::BLOCK / Type::Dots::STEP);
#endif
    }
};

// Add a part of block `b` times N columns to `totals`.
template <class Type, int N, class Written>
PYG_INLINE inline void multiply_part(const uint8_t * block, int64_t part, int64_t b, const Written & written,
                                     const BlockScales & scales, Columns<Type, N> columns, Ints (&totals)[N]) {
    constexpr int TURNS = sub_blocks_per_block<Type>() / Type::PARTS / sub_blocks_in_registers<Type, N>();
    if constexpr (N > 2) {  // else the hardware prefetcher suffices
        prefetch_weights<Type>(block, part);
    }
    unroll<TURNS>([&](auto turn) PYG_INLINE {
        SubBlockSums<Type, turn, N, Written> sums(columns, b * sub_blocks_per_block<Type>(), part, written);
        unpack_units<Type>(block, part, sums, std::make_integer_sequence<int, Type::LOADS_PER_PART>());
        sums.end(scales, totals);
    });
}

// Set `totals` to block `b` of a tile times N columns, and pass its weights to the writer.
template <class Type, int N, class Written>
PYG_INLINE inline void multiply_parts(const uint8_t * block, int b, const Written & written, const BlockScales & scales,
                                      Columns<Type, N> columns, Ints (&totals)[N]) {
    unroll<N>([&](auto n) PYG_INLINE { totals[n] = zero(); });
    for (int64_t part = 0; part < Type::PARTS; ++part) {  // not unrolled: short loops stay in the uop cache
        multiply_part<Type, N>(block, part, b, written, scales, columns, totals);
    }
    written.end();
}

// Multiply `k` values of 16 rows with N columns, whose tiles are `stride` apart.
template <class Type, int N>
PYG_NOINLINE void gemv(const uint8_t * block, int64_t k, const QuantizedColumnFor<Type> * columns, int64_t stride,
                       const int32_t * which, float (*results)[GROUP_ROWS]) {
    constexpr int                    BLOCKS = TILE_K / Type::BLOCK;
    BlockScales                      scales;
    const QuantizedColumnFor<Type> * at[N];
    Floats                           sums[N];
    unroll<N>([&](auto n) PYG_INLINE {
        at[n]   = columns + which[n];
        sums[n] = Floats::set1(0.0F);
    });
    const int64_t n_blocks = k / Type::BLOCK;
    for (int64_t i = 0; i < n_blocks; ++i, block += block_bytes<Type>()) {
        const int b = static_cast<int>(i % BLOCKS);
        unroll<N>([&](auto n) PYG_INLINE { at[n] = i > 0 && b == 0 ? at[n] + stride : at[n]; });
        Ints totals[N];
        Type::unpack_scales(block, scales, b);
        multiply_parts<Type, N>(block, b, NoTileWriter(), scales, at, totals);
        end_block<Type, N>(scales, b, at, totals, sums);
    }
    unroll<N>([&](auto n) PYG_INLINE { sums[n].store(results[n]); });
}

// Adds blocks of a group, whose factors are in `tile`, times N columns to `results`, and has them Written in `tile`.
template <class Type, int N, class Written>
PYG_NOINLINE void gemv_blocks(const uint8_t * block, int n_blocks, Tile & tile,
                              const QuantizedColumnFor<Type> * columns, const int32_t * which,
                              float (*results)[GROUP_ROWS]) {
    const QuantizedColumnFor<Type> * at[N];
    Floats                           sums[N];
    Ints                             totals[N];
    unroll<N>([&](auto n) PYG_INLINE { at[n] = columns + which[n]; });
    if constexpr (Type::BLOCK == TILE_K) {  // a single block: load `results` late, while registers are scarce
        multiply_parts<Type, N>(block, 0, Written(tile, 0), tile.scales, at, totals);
        unroll<N>([&](auto n) PYG_INLINE { sums[n] = Floats::load(results[n]); });
        end_block<Type, N>(tile.scales, 0, at, totals, sums);
    } else {
        unroll<N>([&](auto n) PYG_INLINE { sums[n] = Floats::load(results[n]); });
        for (int b = 0; b < n_blocks; ++b, block += block_bytes<Type>()) {
            multiply_parts<Type, N>(block, b, Written(tile, b), tile.scales, at, totals);
            end_block<Type, N>(tile.scales, b, at, totals, sums);
        }
    }
    unroll<N>([&](auto n) PYG_INLINE { sums[n].store(results[n]); });
}

// GEMV with N = n_columns.
template <class Type, int N>
void gemv_columns(const uint8_t * group, int64_t k, const QuantizedColumnFor<Type> * columns, int64_t stride,
                  const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    if (N == n_columns) {
        gemv<Type, N>(group, k, columns, stride, which, results);
    } else if constexpr (N > 1) {
        gemv_columns<Type, N - 1>(group, k, columns, stride, which, n_columns, results);
    }
}

}  // namespace pyg::kernels
