// Weights times a few columns of activations, as they are unpacked: reading a tile again would take longer. If many
// more columns are to come, the weights are also written down, while the unit that multiplies is busy.
#pragma once

#include "kernels/qgemm/dot_products.hpp"
#ifdef PYG_DOTS_OF_EIGHT
#    include "kernels/qgemm/i8mm_dots.hpp"
#endif

namespace pyg::kernels {

// Segments of a part that are multiplied at once, as many as registers hold the sums of: the others are unpacked later,
// from the same bytes.
template <class Type, int N>
constexpr int segments_at_once() {
    constexpr int SEGMENTS = segments_of_block<Type>() / Type::PARTS;
    constexpr int SUMS     = steps_of_segment<Type>() / run_of<Type>() * N;
    int           n        = std::clamp(SUMS_AT_ONCE / SUMS, 1, SEGMENTS);
    while (SEGMENTS % n != 0) {
        --n;
    }
    return n;
}

// The sums of those segments of a part that are multiplied as number TURN; of each as many as are needed lest they run
// over. The values of other segments are passed over.
template <class Type, int TURN, int N, class Written>
struct SegmentSums {
    static constexpr int SEGMENTS = segments_at_once<Type, N>();
    static constexpr int FIRST    = TURN * SEGMENTS;
    static constexpr int RUN      = run_of<Type>();
    static constexpr int RUNS     = steps_of_segment<Type>() / RUN;

    Columns<Type, N> columns;
    const int64_t    block_segment;  // the block's first
    const int64_t    part;
    const Written    written;
    Ints             sums[SEGMENTS][RUNS][N];

    PYG_INLINE SegmentSums(Columns<Type, N> columns, int64_t block_segment, int64_t part, const Written & written)
        : columns(columns), block_segment(block_segment), part(part), written(written) {
        unrolled<SEGMENTS * RUNS>([&](auto i) PYG_INLINE {
            begin_sums<Type, N>(columns, segment(FIRST + i / RUNS), sums[i / RUNS][i % RUNS]);
        });
    }

    template <int I, int STEP>
    PYG_INLINE void add(const Ints & weights) {
        if constexpr (I >= FIRST && I < FIRST + SEGMENTS) {
            written.template write<I, STEP>(part, weights);
            add_step<Type, N>(columns, segment(I), STEP, weights, sums[I - FIRST][STEP / RUN]);
        }
    }

    PYG_INLINE void end(const Factors & factors, Ints (&totals)[N]) {
        unrolled<SEGMENTS * RUNS>([&](auto i) PYG_INLINE {
            end_sums<Type, N>(factors, segment(FIRST + i / RUNS), sums[i / RUNS][i % RUNS], totals);
        });
    }

  private:
    PYG_INLINE int64_t segment(int i) const { return block_segment + Type::segment_of(part, i); }
};

// Weights that are needed once.
struct NothingWritten {
    NothingWritten() = default;
    NothingWritten(Tile &, int) {}

    template <int I, int STEP>
    void write(int64_t, const Ints &) const {}
    void end() const {}
};

// Weights that become a block of a tile.
template <class Type>
struct WrittenBlock {
    uint8_t (*const values)[64];

    WrittenBlock(Tile & tile, int b) : values(tile.values + b * Type::BLOCK / Type::Dots::STEP) {}

    template <int I, int STEP>
    PYG_INLINE void write(int64_t part, const Ints & weights) const {
        store(values[Type::segment_of(part, I) * steps_of_segment<Type>() + STEP], weights);
    }

    void end() const {
#ifdef PYG_DOTS_OF_EIGHT
        put_in_pairs(values, Type::BLOCK / Type::Dots::STEP);
#endif
    }
};

// Adds to `totals` a part of block `b` times N columns.
template <class Type, int N, class Written>
PYG_INLINE inline void multiply_part(const uint8_t * block, int64_t part, int64_t b, const Written & written,
                                     const Factors & factors, Columns<Type, N> columns, Ints (&totals)[N]) {
    constexpr int TURNS = segments_of_block<Type>() / Type::PARTS / segments_at_once<Type, N>();
    if constexpr (N > 2) {  // else processors foresee what is wanted, and asking would slow them down
        ask_ahead<Type>(block, part);
    }
    unrolled<TURNS>([&](auto turn) PYG_INLINE {
        SegmentSums<Type, turn, N, Written> sums(columns, b * segments_of_block<Type>(), part, written);
        add_units<Type>(block, part, sums, std::make_integer_sequence<int, Type::UNITS>());
        sums.end(factors, totals);
    });
}

// Makes `totals` those of block `b` of a tile times N columns, and has its weights written down.
template <class Type, int N, class Written>
PYG_INLINE inline void multiply_parts(const uint8_t * block, int b, const Written & written, const Factors & factors,
                                      Columns<Type, N> columns, Ints (&totals)[N]) {
    unrolled<N>([&](auto n) PYG_INLINE { totals[n] = zero(); });
    for (int64_t part = 0; part < Type::PARTS; ++part) {  // not unrolled: processors keep short loops decoded
        multiply_part<Type, N>(block, part, b, written, factors, columns, totals);
    }
    written.end();
}

// Multiplies `k` values of 16 rows with N columns, whose tiles lie `stride` apart.
template <class Type, int N>
PYG_ALONE void multiply_directly(const uint8_t * block, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                                 const int32_t * which, float (*results)[GROUP_ROWS]) {
    constexpr int               BLOCKS = TILE_K / Type::BLOCK;
    Factors                     factors;
    const ColumnTileFor<Type> * at[N];
    Floats                      sums[N];
    unrolled<N>([&](auto n) PYG_INLINE {
        at[n]   = columns + which[n];
        sums[n] = everywhere(0.0F);
    });
    const int64_t n_blocks = k / Type::BLOCK;
    for (int64_t i = 0; i < n_blocks; ++i, block += block_bytes<Type>()) {
        const int b = static_cast<int>(i % BLOCKS);
        unrolled<N>([&](auto n) PYG_INLINE { at[n] = i > 0 && b == 0 ? at[n] + stride : at[n]; });
        Ints totals[N];
        Type::factors(block, factors, b);
        multiply_parts<Type, N>(block, b, NothingWritten(), factors, at, totals);
        end_block<Type, N>(factors, b, at, totals, sums);
    }
    unrolled<N>([&](auto n) PYG_INLINE { store(results[n], sums[n]); });
}

// Adds blocks of a group, whose factors are in `tile`, times N columns to `results`, and has them Written in `tile`.
template <class Type, int N, class Written>
PYG_ALONE void multiply_blocks(const uint8_t * block, int n_blocks, Tile & tile, const ColumnTileFor<Type> * columns,
                               const int32_t * which, float (*results)[GROUP_ROWS]) {
    const ColumnTileFor<Type> * at[N];
    Floats                      sums[N];
    Ints                        totals[N];
    unrolled<N>([&](auto n) PYG_INLINE { at[n] = columns + which[n]; });
    if constexpr (Type::BLOCK == TILE_K) {  // a single one: `results` are not in the way while registers are short
        multiply_parts<Type, N>(block, 0, Written(tile, 0), tile.factors, at, totals);
        unrolled<N>([&](auto n) PYG_INLINE { sums[n] = load_floats(results[n]); });
        end_block<Type, N>(tile.factors, 0, at, totals, sums);
    } else {
        unrolled<N>([&](auto n) PYG_INLINE { sums[n] = load_floats(results[n]); });
        for (int b = 0; b < n_blocks; ++b, block += block_bytes<Type>()) {
            multiply_parts<Type, N>(block, b, Written(tile, b), tile.factors, at, totals);
            end_block<Type, N>(tile.factors, b, at, totals, sums);
        }
    }
    unrolled<N>([&](auto n) PYG_INLINE { store(results[n], sums[n]); });
}

// The same where N is n_columns.
template <class Type, int N>
void multiply_few(const uint8_t * group, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                  const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    if (N == n_columns) {
        multiply_directly<Type, N>(group, k, columns, stride, which, results);
    } else if constexpr (N > 1) {
        multiply_few<Type, N - 1>(group, k, columns, stride, which, n_columns, results);
    }
}

}  // namespace pyg::kernels
