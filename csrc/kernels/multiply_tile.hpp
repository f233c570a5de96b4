// A tile of 16 rows of weights times some columns of activations.
#pragma once

#include "columns.hpp"
#include "tiles.hpp"

#include <algorithm>

// Loops whose arrays are to be registers have to be unrolled, which compilers would not always do by themselves.
#if defined(__clang__)
#    define PYG_UNROLL _Pragma("unroll")
#else
#    define PYG_UNROLL _Pragma("GCC unroll 16")
#endif

// Functions whose arrays are to be registers: among other code some would not be.
#if defined(__GNUC__)
#    define PYG_ALONE __attribute__((noinline))
#else
#    define PYG_ALONE
#endif

namespace pyg::kernels {

// N columns' parts that meet a tile.
template <class Type, int N>
using Columns = const ColumnTileFor<Type> * const (&)[N];

// Steps that are added up before sums have to be widened.
template <class Type>
constexpr int run_of() {
    constexpr int N_STEPS = Type::SEGMENT / Type::Dots::STEP;
    if constexpr (Type::MINIMA) {
        return std::min(N_STEPS, Type::Dots::steps_that_fit(Type::MOST));
    } else {
        static_assert(Type::Dots::segment_fits(Type::SEGMENT, Type::PLUS));
        return N_STEPS;
    }
}

// The sums of segment `s` as numbers of 32 bits, times its scale if it has one.
template <class Type>
inline Ints total_of(const Tile & tile, int s, const Ints & sums) {
    if constexpr (Type::SEGMENT == Type::BLOCK) {
        return Type::Dots::total(sums);
    } else {
        return Type::Dots::total(sums, load(tile.scales[s]));
    }
}

// Adds to `total`, or makes it, the integer sums of segment `s` of a tile, times its scale.
template <class Type, int N>
inline void add_segment(const Tile & tile, int s, bool is_first, Columns<Type, N> columns, Ints * total) {
    using Dots            = typename Type::Dots;
    constexpr int N_STEPS = Type::SEGMENT / Dots::STEP;
    constexpr int RUN     = run_of<Type>();
    PYG_UNROLL
    for (int first = 0; first < N_STEPS; first += RUN) {
        Ints sums[N];
        PYG_UNROLL
        for (int n = 0; n < N; ++n) {
            sums[n] = Type::PLUS != 0 ? broadcast(columns[n]->starts + s) : zero();
        }
        PYG_UNROLL
        for (int step = first; step < first + RUN; ++step) {
            Ints weights = load(tile.values[s * N_STEPS + step]);
            keep(weights);
            PYG_UNROLL
            for (int n = 0; n < N; ++n) {
                Dots::add(sums[n], weights, broadcast(columns[n]->q + (s * N_STEPS + step) * Dots::STEP));
            }
        }
        PYG_UNROLL
        for (int n = 0; n < N; ++n) {
            const Ints part = total_of<Type>(tile, s, sums[n]);
            total[n]        = is_first && first == 0 ? part : add(total[n], part);
        }
    }
}

// The minima of a block times the columns' sums.
template <class Type>
inline Ints offset_of(const Tile & tile, const int16_t * sums) {
    if constexpr (Type::BLOCK == Type::SEGMENT) {
        return everywhere(*sums);
    } else {
        Ints offset = zero();
        for (int p = 0; p < Type::BLOCK / Type::SEGMENT / 2; ++p) {
            offset = add(offset, multiply_pairs(load(tile.offsets[p]), broadcast(sums + 2 * p)));
        }
        return offset;
    }
}

// Adds block `b` of a tile times N columns to `results`.
template <class Type, int N>
inline void multiply_block(const Tile & tile, int b, Columns<Type, N> columns, Floats * results) {
    constexpr int N_SEGMENTS = Type::BLOCK / Type::SEGMENT;
    const int     first      = b * N_SEGMENTS;
    Ints          total[N];
    add_segment<Type, N>(tile, first, true, columns, total);
    for (int s = first + 1; s < first + N_SEGMENTS; ++s) {
        add_segment<Type, N>(tile, s, false, columns, total);
    }
    const Floats d = load_floats(tile.d[b]);
    PYG_UNROLL
    for (int n = 0; n < N; ++n) {
        Floats sum = multiply(d, to_floats(total[n]));
        if constexpr (Type::MINIMA) {
            const Ints offset = offset_of<Type>(tile, columns[n]->sums + first);
            sum               = multiply_add(load_floats(tile.m[b]), to_floats(offset), sum);
        }
        results[n] = multiply_add(sum, everywhere(columns[n]->d[b]), results[n]);
    }
}

// Adds a tile times N columns to `results`, [N][16 rows]; column n is number which[n] of `columns`.
template <class Type, int N>
PYG_ALONE void multiply_tile(const Tile & tile, int n_blocks, const ColumnTileFor<Type> * columns,
                             const int32_t * which, float (*results)[GROUP_ROWS]) {
    const ColumnTileFor<Type> * at[N];
    Floats                      sums[N];
    PYG_UNROLL
    for (int n = 0; n < N; ++n) {
        at[n]   = columns + which[n];
        sums[n] = load_floats(results[n]);
    }
    for (int b = 0; b < n_blocks; ++b) {
        multiply_block<Type, N>(tile, b, at, sums);
    }
    PYG_UNROLL
    for (int n = 0; n < N; ++n) {
        store(results[n], sums[n]);
    }
}

// The same for any number of columns: N at a time, and what is left.
template <class Type, int N>
void multiply_columns(const Tile & tile, int n_blocks, const ColumnTileFor<Type> * columns, const int32_t * which,
                      int n_columns, float (*results)[GROUP_ROWS]) {
    for (; n_columns >= N; n_columns -= N, which += N, results += N) {
        multiply_tile<Type, N>(tile, n_blocks, columns, which, results);
    }
    if constexpr (N > 1) {
        if (n_columns > 0) {
            multiply_columns<Type, N - 1>(tile, n_blocks, columns, which, n_columns, results);
        }
    }
}

// Multiplies a whole group, `k` values of 16 rows, with columns: results[n][r] is row r times column which[n], whose
// tiles lie `stride` apart.
template <class Type>
void multiply_group(const uint8_t * group, size_t block_bytes, int64_t k, const ColumnTileFor<Type> * columns,
                    int64_t stride, const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    Tile tile;
    std::memset(results, 0, n_columns * sizeof(*results));
    for (int64_t first = 0; first < k; first += TILE_K, columns += stride) {
        const int n_blocks = static_cast<int>(std::min<int64_t>(TILE_K, k - first)) / Type::BLOCK;
        for (int b = 0; b < n_blocks; ++b) {
            Type::unpack(group, tile, b);
            group += GROUP_ROWS * block_bytes;
        }
        multiply_columns<Type, TILE_COLUMNS>(tile, n_blocks, columns, which, n_columns, results);
    }
}

}  // namespace pyg::kernels
