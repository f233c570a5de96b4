// A group, all values of 16 rows of weights, times columns of activations.
#pragma once

#include "kernels/qgemm/gemv.hpp"
#include "kernels/qgemm/micro_kernel.hpp"
#ifdef PYG_AMX
#    include "kernels/qgemm/amx/gemm_amx.hpp"
#endif

namespace pyg::kernels {

// From how many columns on sets of them take turns at the same 256 values of each row. If these are fewer than
// MANY_COLUMNS, they share factors alone, of which types with small blocks have few.
template <class Type>
constexpr int fewest_in_sets() {
    return Type::BLOCK == TILE_K ? std::min(2 * TILE_COLUMNS, MANY_COLUMNS) : MANY_COLUMNS;
}

// Multiplies `n_blocks` of a group with columns whose number is a multiple of TILE_COLUMNS. If there are many, the
// first are multiplied as weights are unpacked, and the others by a tile.
template <class Type>
void multiply_sets(const uint8_t * group, int n_blocks, Tile & tile, const ColumnTileFor<Type> * columns,
                   const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    constexpr int N = TILE_COLUMNS;
    for (int b = 0; b < n_blocks; ++b) {
        Type::factors(group + b * block_bytes<Type>(), tile.factors, b);
    }
    if (n_columns >= MANY_COLUMNS) {
        multiply_blocks<Type, N, WrittenBlock<Type>>(group, n_blocks, tile, columns, which, results);
        for (int n = N; n < n_columns; n += N) {
            multiply_tile<Type, N>(tile, n_blocks, columns, which + n, results + n);
        }
    } else if constexpr (fewest_in_sets<Type>() < MANY_COLUMNS) {
        for (int n = 0; n < n_columns; n += N) {
            multiply_blocks<Type, N, NothingWritten>(group, n_blocks, tile, columns, which + n, results + n);
        }
    }
}

// Multiplies columns whose number is a multiple of TILE_COLUMNS.
template <class Type>
void multiply_many(const uint8_t * group, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                   const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    Tile tile;
    std::memset(results, 0, n_columns * sizeof(*results));
    for (int64_t first = 0; first < k; first += TILE_K, columns += stride) {
        const int n_blocks = static_cast<int>(std::min<int64_t>(TILE_K, k - first)) / Type::BLOCK;
        multiply_sets<Type>(group, n_blocks, tile, columns, which, n_columns, results);
        group += n_blocks * block_bytes<Type>();
    }
}

// results[n][r] is row r times column which[n]. The columns' tiles lie `stride` apart.
template <class Type>
void multiply_group(const uint8_t * group, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                    const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
#ifdef PYG_AMX
    if (n_columns >= FEWEST_AMX_COLUMNS && amx::is_available()) {
        multiply_with_amx<Type>(group, k, columns, stride, which, n_columns, results);
        return;
    }
#endif
    const int n_many = n_columns < fewest_in_sets<Type>() ? 0 : n_columns / TILE_COLUMNS * TILE_COLUMNS;
    if (n_many > 0) {
        multiply_many<Type>(group, k, columns, stride, which, n_many, results);
    }
    for (int n = n_many; n < n_columns; n += FEW_COLUMNS) {
        const int n_few = std::min(FEW_COLUMNS, n_columns - n);
        multiply_few<Type, FEW_COLUMNS>(group, k, columns, stride, which + n, n_few, results + n);
    }
}

}  // namespace pyg::kernels
