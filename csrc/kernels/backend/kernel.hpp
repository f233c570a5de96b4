// What this folder is made of: a kernel computes one kind of node of ggml's graphs, inside ggml's own threads.
//
// A node is offered to each kernel in turn before upstream computes it (registration.cpp); a norm and the product that
// upstream joins with it are offered together (upstream_ggml_cpu.c). Every result of our kernels is, row by row, the
// same bits whatever else is in the batch, however it was split, and whatever the number of threads: sums of integers
// are exact, and sums of floats go in an order that depends on the row alone.
#pragma once

#include "ggml-cpu-impl.h"  // ggml_compute_params, ggml_barrier
#include "traits.h"

namespace pyg::kernels {

using Kernel = ggml::cpu::tensor_traits;

// Each returns the kernel that computes `op`, or null if upstream's code has to.
Kernel * attention_for(const ggml_tensor * op);
Kernel * norm_for(const ggml_tensor * op);
Kernel * product_for(const ggml_tensor * op);      // of weights that lie in tiles
Kernel * row_product_for(const ggml_tensor * op);  // of all others

// Whether nodes are offered to kernels at all.
bool are_registered();

inline bool has_rows_of_floats(const ggml_tensor * tensor) {
    return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
}

// Row number `i` of all rows of floats that a tensor has.
inline const float * row_at(const ggml_tensor * tensor, int64_t i) {
    const int64_t i1     = i % tensor->ne[1];
    const int64_t i2     = i / tensor->ne[1] % tensor->ne[2];
    const int64_t i3     = i / tensor->ne[1] / tensor->ne[2];
    const size_t  offset = i1 * tensor->nb[1] + i2 * tensor->nb[2] + i3 * tensor->nb[3];
    return reinterpret_cast<const float *>(static_cast<const char *>(tensor->data) + offset);
}

}  // namespace pyg::kernels
