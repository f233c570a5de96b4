// Products whose weights stay as they are in the file, plain and by expert.
#pragma once

#include "kernel.hpp"

namespace pyg::kernels {

// Each returns the kernel for weights of this type, or null if there is none.
Kernel * float_product_for(ggml_type type);      // of floats
Kernel * converted_product_for(ggml_type type);  // of types that upstream multiplies row by row

}  // namespace pyg::kernels
