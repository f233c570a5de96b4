// A tile of 16 rows of weights times up to four columns of activations.
#pragma once

#include "columns.hpp"
#include "tiles.hpp"
#include "vector_avx2.hpp"

#include <algorithm>

namespace pyg::kernels {

constexpr int TILE_COLUMNS = 4;

// Adds to `total` the integer sums of one segment, times its scale; `values` is its first step in a plane.
template <class Type, int N>
inline void add_segment(const uint8_t (*values)[GROUP_ROWS * 4], const Ints & scale, const int8_t * const * q,
                        Ints * total) {
    constexpr int N_STEPS = Type::SEGMENT / 4;
    for (int first = 0; first < N_STEPS; first += Type::RUN) {
        Ints sums[N];
        for (int n = 0; n < N; ++n) {
            sums[n] = zero();
        }
        for (int step = first; step < first + Type::RUN; ++step) {
            const Ints weights = load(values[step]);
            for (int n = 0; n < N; ++n) {
                add_products(sums[n], weights, broadcast(q[n] + 4 * step));
            }
        }
        for (int n = 0; n < N; ++n) {
            total[n] = add(total[n], products(sums[n], scale));
        }
    }
}

// What the values of a block have too much: the sum of its segments' offsets times the columns' sums.
template <class Type>
inline Ints offset_of(const Tile & tile, const int16_t * sums) {
    if constexpr (Type::BLOCK == Type::SEGMENT) {
        const __m256i offset = _mm256_set1_epi32(Type::PLUS * *sums);
        return {offset, offset};
    } else {
        Ints offset = zero();
        for (int p = 0; p < Type::BLOCK / Type::SEGMENT / 2; ++p) {
            offset = add(offset, products(load(tile.offsets[p]), broadcast(sums + 2 * p)));
        }
        return offset;
    }
}

// Adds block `b` of a tile times N columns to `results`, [N][16 rows]. `k` is the tile's first value in its rows.
template <class Type, int N>
inline void multiply_block(const Tile & tile, int b, int64_t k, const Column * columns, float (*results)[GROUP_ROWS]) {
    const int64_t  first = k + b * Type::BLOCK;
    const int8_t * q[N];
    Ints           total[N];
    for (int n = 0; n < N; ++n) {
        q[n]     = columns[n].q + first;
        total[n] = zero();
    }
    if constexpr (Type::BLOCK == Type::SEGMENT) {
        for (int plane = 0; plane < Type::PLANES; ++plane) {
            const __m256i worth = _mm256_set1_epi16(plane == 0 ? 1 : 16);
            add_segment<Type, N>(tile.values[plane] + b * Type::BLOCK / 4, {worth, worth}, q, total);
        }
    } else {
        for (int s = 0; s < Type::BLOCK / Type::SEGMENT; ++s) {
            const int8_t * segment[N];
            for (int n = 0; n < N; ++n) {
                segment[n] = q[n] + s * Type::SEGMENT;
            }
            add_segment<Type, N>(tile.values[0] + s * Type::SEGMENT / 4, load(tile.scales[s]), segment, total);
        }
    }
    const Floats d = load_floats(tile.d[b]);
    for (int n = 0; n < N; ++n) {
        const Ints offset = offset_of<Type>(tile, columns[n].sums + first / Type::SEGMENT);
        Floats     sum;
        if constexpr (Type::MINIMA) {
            sum = multiply_subtract(d, to_floats(total[n]), multiply(load_floats(tile.m[b]), to_floats(offset)));
        } else {
            sum = multiply(d, to_floats(subtract(total[n], offset)));
        }
        store(results[n], multiply_add(sum, columns[n].d[first / Type::BLOCK], load_floats(results[n])));
    }
}

template <class Type, int N>
void multiply_tile(const Tile & tile, int n_blocks, int64_t k, const Column * columns, float (*results)[GROUP_ROWS]) {
    for (int b = 0; b < n_blocks; ++b) {
        multiply_block<Type, N>(tile, b, k, columns, results);
    }
}

// Multiplies a whole group, `k` values of 16 rows, with columns: results[n][r] is row r times column n.
template <class Type>
void multiply_group(const uint8_t * group, size_t block_bytes, int64_t k, const Column * columns, int n_columns,
                    float (*results)[GROUP_ROWS]) {
    Tile tile;
    std::memset(results, 0, n_columns * sizeof(*results));
    for (int64_t first = 0; first < k; first += TILE_K) {
        const int n_blocks = static_cast<int>(std::min<int64_t>(TILE_K, k - first)) / Type::BLOCK;
        for (int b = 0; b < n_blocks; ++b) {
            Type::unpack(group, tile, b);
            group += GROUP_ROWS * block_bytes;
        }
        int n = 0;
        for (; n + TILE_COLUMNS <= n_columns; n += TILE_COLUMNS) {
            multiply_tile<Type, TILE_COLUMNS>(tile, n_blocks, first, columns + n, results + n);
        }
        switch (n_columns - n) {
        case 3:
            multiply_tile<Type, 3>(tile, n_blocks, first, columns + n, results + n);
            break;
        case 2:
            multiply_tile<Type, 2>(tile, n_blocks, first, columns + n, results + n);
            break;
        case 1:
            multiply_tile<Type, 1>(tile, n_blocks, first, columns + n, results + n);
            break;
        }
    }
}

}  // namespace pyg::kernels
