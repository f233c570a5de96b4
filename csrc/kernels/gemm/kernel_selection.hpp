// Kernels of MUL_MAT and MUL_MAT_ID for weights in the layout of the file.
#pragma once

#include "kernels/backend/kernel.hpp"
#include "kernels/gemm/work_item.hpp"

namespace pyg::kernels {

// Each returns the kernel for such weights, or null.
Kernel * bf16_mul_mat_for(const ggml_tensor * weights);  // of BF16, in AMX's registers
Kernel * converted_mul_mat_for(ggml_type type);          // of BF16 in pairs, and of quantised types
Kernel * float_mul_mat_for(ggml_type type);              // of floats

// Multiply rows of F32, F16 or BF16 weights, `stride` bytes apart, with columns of `n` floats. The bits of a result
// depend on its row and column alone.
void multiply_floats(ggml_type type, const WorkItem & item, size_t stride, int64_t n);

}  // namespace pyg::kernels
