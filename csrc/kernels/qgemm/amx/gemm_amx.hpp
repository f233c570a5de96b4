// GEMM with AMX: a group (16 rows of weights) times columns of activations, 16 at a time.
//
// The sums are the same integers as those of gemv.hpp, and become floats by operations that round alike,
// so that results are the same bits; but for the sign of a zero, where products are too small for floats. While the
// registers are busy with sums, vectors add earlier ones to results: a processor looks ahead by some hundred
// instructions only, so the two are interleaved. Weights are unpacked before, when vectors have both their units.
#pragma once

#include "kernels/qgemm/amx/gemm_amx_blocks.hpp"
#include "kernels/qgemm/amx/gemm_amx_superblocks.hpp"

namespace pyg::kernels {

// results[n][r] is row r times column which[n]. The columns' tiles lie `stride` apart. The caller releases the
// registers.
template <class Type>
void multiply_with_amx(const uint8_t * group, int64_t k, const QuantizedColumnFor<Type> * columns, int64_t stride,
                       const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    amx::prepare<PlanesOf<Type>::VALUES>();
    ColumnSets<Type> sets(which, n_columns, results);
    if constexpr (PlanesOf<Type>::SCALED) {
        multiply_group_of_superblocks<Type>(group, k, columns, stride, sets);
    } else {
        multiply_group_of_blocks<Type>(group, k, columns, stride, sets);
    }
    sets.take_last_results();
}

}  // namespace pyg::kernels
