// Declarations of multiply_row_group() for every weight type; unit_*.cpp compile them in parallel.
#pragma once

#include "kernels/qgemm/block_formats.hpp"
#include "kernels/qgemm/gemm.hpp"
#include "kernels/qgemm/superblock_formats.hpp"

#define PYG_ROW_GROUP_INSTANCE(Type)                                                                                   \
    template void multiply_row_group<Type>(const uint8_t *, int64_t, const QuantizedColumnFor<Type> *, int64_t,        \
                                           const int32_t *, int, float (*)[GROUP_ROWS]);

namespace pyg::kernels {

#define PYG_WEIGHT_TYPE(NAME, UNIT, ...) extern PYG_ROW_GROUP_INSTANCE(NAME)
#include "kernels/qgemm/types.def"

}  // namespace pyg::kernels
