// Kernels of MUL_MAT and MUL_MAT_ID for weights in the layout of the file.
#pragma once

#include "kernels/backend/kernel.hpp"

namespace pyg::kernels {

// Each returns the kernel for such weights, or null.
Kernel * bf16_mul_mat_for(const ggml_tensor * weights);  // of BF16, in AMX's registers
Kernel * converted_mul_mat_for(ggml_type type);          // of BF16 in pairs, and of quantised types
Kernel * float_mul_mat_for(ggml_type type);              // of floats

}  // namespace pyg::kernels
