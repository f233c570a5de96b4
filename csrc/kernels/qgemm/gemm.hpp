// GEMM: a group (16 rows of weights) times columns of activations.
#pragma once

#include "kernels/qgemm/gemv.hpp"
#include "kernels/qgemm/micro_kernel.hpp"
#ifdef PYG_AMX
#    include "kernels/qgemm/amx/gemm_amx.hpp"
#endif

namespace pyg::kernels {

// From how many columns on sets of them take turns at the same 256 values of each row. If these are fewer than
// GEMM_MIN_COLUMNS, they share factors alone, of which types with small blocks have few.
template <class Type>
constexpr int min_columns_in_sets() {
    return Type::BLOCK == TILE_K ? std::min(2 * MICRO_KERNEL_COLUMNS, GEMM_MIN_COLUMNS) : GEMM_MIN_COLUMNS;
}

// Multiplies `n_blocks` of a group with columns whose number is a multiple of MICRO_KERNEL_COLUMNS. If there are many,
// the first are multiplied as weights are unpacked, and the others by a tile.
template <class Type>
void multiply_sets(const uint8_t * group, int n_blocks, Tile & tile, const QuantizedColumnFor<Type> * columns,
                   const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    constexpr int N = MICRO_KERNEL_COLUMNS;
    for (int b = 0; b < n_blocks; ++b) {
        Type::unpack_scales(group + b * block_bytes<Type>(), tile.scales, b);
    }
    if (n_columns >= GEMM_MIN_COLUMNS) {
        gemv_blocks<Type, N, TileWriter<Type>>(group, n_blocks, tile, columns, which, results);
        for (int n = N; n < n_columns; n += N) {
            micro_kernel<Type, N>(tile, n_blocks, columns, which + n, results + n);
        }
    } else if constexpr (min_columns_in_sets<Type>() < GEMM_MIN_COLUMNS) {
        for (int n = 0; n < n_columns; n += N) {
            gemv_blocks<Type, N, NoTileWriter>(group, n_blocks, tile, columns, which + n, results + n);
        }
    }
}

// Multiplies columns whose number is a multiple of MICRO_KERNEL_COLUMNS.
template <class Type>
void gemm_columns(const uint8_t * group, int64_t k, const QuantizedColumnFor<Type> * columns, int64_t stride,
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
void multiply_row_group(const uint8_t * group, int64_t k, const QuantizedColumnFor<Type> * columns, int64_t stride,
                        const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
#ifdef PYG_AMX
    if (n_columns >= MIN_AMX_COLUMNS && amx::is_available()) {
        multiply_with_amx<Type>(group, k, columns, stride, which, n_columns, results);
        return;
    }
#endif
    const int n_many =
        n_columns < min_columns_in_sets<Type>() ? 0 : n_columns / MICRO_KERNEL_COLUMNS * MICRO_KERNEL_COLUMNS;
    if (n_many > 0) {
        gemm_columns<Type>(group, k, columns, stride, which, n_many, results);
    }
    for (int n = n_many; n < n_columns; n += GEMV_COLUMNS) {
        const int n_few = std::min(GEMV_COLUMNS, n_columns - n);
        gemv_columns<Type, GEMV_COLUMNS>(group, k, columns, stride, which + n, n_few, results + n);
    }
}

}  // namespace pyg::kernels
