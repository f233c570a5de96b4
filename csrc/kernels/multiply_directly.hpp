// Weights times a few columns of activations, as they are unpacked: writing down a tile would take as long as reading
// the weights.
#pragma once

#include "dot_sums.hpp"

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
template <class Type, int PART, int TURN, int N>
struct SegmentSums {
    static constexpr int SEGMENTS = segments_at_once<Type, N>();
    static constexpr int FIRST    = TURN * SEGMENTS;
    static constexpr int RUN      = run_of<Type>();
    static constexpr int RUNS     = steps_of_segment<Type>() / RUN;

    Columns<Type, N> columns;
    const int        block_segment;  // the block's first
    Ints             sums[SEGMENTS][RUNS][N];

    PYG_INLINE SegmentSums(Columns<Type, N> columns, int block_segment)
        : columns(columns), block_segment(block_segment) {
        unrolled<SEGMENTS * RUNS>([&](auto i) PYG_INLINE {
            begin_sums<Type, N>(columns, segment(FIRST + i / RUNS), sums[i / RUNS][i % RUNS]);
        });
    }

    template <int I, int STEP>
    PYG_INLINE void add(const Ints & weights) {
        if constexpr (I >= FIRST && I < FIRST + SEGMENTS) {
            add_step<Type, N>(columns, segment(I), STEP, weights, sums[I - FIRST][STEP / RUN]);
        }
    }

    PYG_INLINE void end(const Factors & factors, Ints (&totals)[N]) {
        unrolled<SEGMENTS * RUNS>([&](auto i) PYG_INLINE {
            end_sums<Type, N>(factors, segment(FIRST + i / RUNS), sums[i / RUNS][i % RUNS], totals);
        });
    }

  private:
    PYG_INLINE int segment(int i) const { return block_segment + Type::segment_of(PART, i); }
};

// Adds to `totals` part PART of block `b` times N columns.
template <class Type, int PART, int N>
PYG_INLINE inline void multiply_part(const uint8_t * block, const Factors & factors, int b, Columns<Type, N> columns,
                                     Ints (&totals)[N]) {
    constexpr int TURNS = segments_of_block<Type>() / Type::PARTS / segments_at_once<Type, N>();
    if constexpr (N > 2) {  // else processors foresee what is wanted, and asking would slow them down
        ask_ahead<Type, PART>(block);
    }
    unrolled<TURNS>([&](auto turn) PYG_INLINE {
        SegmentSums<Type, PART, turn, N> sums(columns, b * segments_of_block<Type>());
        add_units<Type, PART>(block, sums, std::make_integer_sequence<int, Type::UNITS>());
        sums.end(factors, totals);
    });
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
        Ints      totals[N];
        unrolled<N>([&](auto n) PYG_INLINE {
            at[n]     = i > 0 && b == 0 ? at[n] + stride : at[n];
            totals[n] = zero();
        });
        Type::factors(block, factors, b);
        unrolled<Type::PARTS>([&](auto part)
                                  PYG_INLINE { multiply_part<Type, part, N>(block, factors, b, at, totals); });
        end_block<Type, N>(factors, b, at, totals, sums);
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
