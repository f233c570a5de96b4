// Products whose weights stay as they are in the file, plain and by expert.
#pragma once

#include "kernels/backend/kernel.hpp"

namespace pyg::kernels {

// Each returns the kernel for such weights, or null if there is none.
Kernel * bf16_product_for(const ggml_tensor * weights);  // of BF16, in AMX's registers
Kernel * converted_product_for(ggml_type type);          // of BF16 in pairs, and of quantised types
Kernel * float_product_for(ggml_type type);              // of floats

}  // namespace pyg::kernels
