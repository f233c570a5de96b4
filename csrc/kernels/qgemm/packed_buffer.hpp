// Buffer type of packed weights (pack.hpp), which are packed as they are loaded.
#pragma once

#include "ggml-backend-impl.h"

namespace pyg::kernels {

// True if this CPU's kernels multiply packed weights of this type and shape (mul_mat_quantized.cpp).
bool can_pack(const ggml_tensor * weights);

// True if the weights are packed.
bool is_packed(const ggml_tensor * weights);

// True if the operation can read packed weights; asked when a model's buffers are chosen.
bool supports_packed_op(const ggml_tensor * op);

// The buffer type, with its ggml context.
ggml_backend_buffer_type_t packed_buffer_type(void * context);

}  // namespace pyg::kernels
