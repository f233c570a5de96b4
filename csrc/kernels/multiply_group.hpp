// A group, all values of 16 rows of weights, times columns of activations.
#pragma once

#include "multiply_directly.hpp"
#include "multiply_tile.hpp"
#ifdef PYG_AMX
#    include "multiply_amx.hpp"
#endif

namespace pyg::kernels {

// Multiplies columns whose number is a multiple of TILE_COLUMNS: the first as weights are unpacked, the others by
// tiles.
template <class Type>
void multiply_many(const uint8_t * group, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                   const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    Tile tile;
    std::memset(results, 0, n_columns * sizeof(*results));
    for (int64_t first = 0; first < k; first += TILE_K, columns += stride) {
        const int n_blocks = static_cast<int>(std::min<int64_t>(TILE_K, k - first)) / Type::BLOCK;
        multiply_and_write<Type, TILE_COLUMNS>(group, n_blocks, tile, columns, which, results);
        group += n_blocks * block_bytes<Type>();
        for (int n = TILE_COLUMNS; n < n_columns; n += TILE_COLUMNS) {
            multiply_tile<Type, TILE_COLUMNS>(tile, n_blocks, columns, which + n, results + n);
        }
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
    const int n_many = n_columns < MANY_COLUMNS ? 0 : n_columns / TILE_COLUMNS * TILE_COLUMNS;
    if (n_many > 0) {
        multiply_many<Type>(group, k, columns, stride, which, n_many, results);
    }
    for (int n = n_many; n < n_columns; n += FEW_COLUMNS) {
        const int n_few = std::min(FEW_COLUMNS, n_columns - n);
        multiply_few<Type, FEW_COLUMNS>(group, k, columns, stride, which + n, n_few, results + n);
    }
}

}  // namespace pyg::kernels
