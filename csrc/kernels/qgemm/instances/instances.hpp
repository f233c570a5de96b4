// multiply_group() of every type, compiled in files of their own (instances/*.cpp): each is a minute's work for a
// compiler in all.
#pragma once

#include "kernels/qgemm/block_formats.hpp"
#include "kernels/qgemm/gemm.hpp"
#include "kernels/qgemm/superblock_formats.hpp"

#define PYG_MULTIPLY_GROUP(Type)                                                                                       \
    void multiply_group<Type>(const uint8_t *, int64_t, const ColumnTileFor<Type> *, int64_t, const int32_t *, int,    \
                              float (*)[GROUP_ROWS])

namespace pyg::kernels {

extern template PYG_MULTIPLY_GROUP(TilesQ40);
extern template PYG_MULTIPLY_GROUP(TilesQ41);
extern template PYG_MULTIPLY_GROUP(TilesQ50);
extern template PYG_MULTIPLY_GROUP(TilesQ51);
extern template PYG_MULTIPLY_GROUP(TilesQ80);
extern template PYG_MULTIPLY_GROUP(TilesIQ4NL);
extern template PYG_MULTIPLY_GROUP(TilesMXFP4);
extern template PYG_MULTIPLY_GROUP(TilesQ4K);
extern template PYG_MULTIPLY_GROUP(TilesQ5K);
extern template PYG_MULTIPLY_GROUP(TilesQ6K);
extern template PYG_MULTIPLY_GROUP(TilesIQ4XS);

}  // namespace pyg::kernels
