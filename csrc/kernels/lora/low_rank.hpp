// Low-rank parts of products: each row of a product gets what the adapters of its own sequence add.
//
// A times the rows of an adapter comes first, while the product itself is computed; then B times that is added to the
// results. A row's sums run in an order that depends on the row alone, so its bits do not depend on its neighbours,
// and a row without an adapter has the bits of a graph without adapters.
#pragma once

#include "kernels/lora/row_adapters.h"

struct ggml_compute_params;
struct ggml_tensor;

namespace pyg::kernels {

// Compute a thread's part of a product with `compute`, and of the low-rank parts of its rows, which
// pyg_row_adapters_of has returned.
void compute_with_adapters(const void * rows, ggml_compute_params * params, ggml_tensor * op,
                           void (*compute)(ggml_compute_params * params, ggml_tensor * op));

}  // namespace pyg::kernels
