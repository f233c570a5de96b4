// A group, all values of 16 rows of weights, times columns of activations.
#pragma once

#include "multiply_directly.hpp"
#include "multiply_tile.hpp"

namespace pyg::kernels {

template <class Type>
void multiply_many(const uint8_t * group, size_t block_bytes, int64_t k, const ColumnTileFor<Type> * columns,
                   int64_t stride, const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    Tile tile;
    std::memset(results, 0, n_columns * sizeof(*results));
    for (int64_t first = 0; first < k; first += TILE_K, columns += stride) {
        const int n_blocks = static_cast<int>(std::min<int64_t>(TILE_K, k - first)) / Type::BLOCK;
        for (int b = 0; b < n_blocks; ++b) {
            unpack_block<Type>(group, tile, b);
            group += GROUP_ROWS * block_bytes;
        }
        multiply_columns<Type, TILE_COLUMNS>(tile, n_blocks, columns, which, n_columns, results);
    }
}

// results[n][r] is row r times column which[n]. The columns' tiles lie `stride` apart.
template <class Type>
void multiply_group(const uint8_t * group, size_t block_bytes, int64_t k, const ColumnTileFor<Type> * columns,
                    int64_t stride, const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    const auto multiply = n_columns <= FEW_COLUMNS ? multiply_few<Type, FEW_COLUMNS> : multiply_many<Type>;
    multiply(group, block_bytes, k, columns, stride, which, n_columns, results);
}

}  // namespace pyg::kernels
