// Which products of weights that stay as they are in the file are ours.
#include "kernels/gemm/kernel_selection.hpp"

#include "ggml-backend.h"
#include "ggml-impl.h"

namespace pyg::kernels {
namespace {

// Whether the tensor lies where upstream's own functions read it.
bool in_plain_memory(const ggml_tensor * tensor) {
    return tensor->buffer == nullptr || ggml_backend_buffer_is_host(tensor->buffer);
}

bool has_whole_rows(const ggml_tensor * weights) {
    return weights->nb[0] == ggml_type_size(weights->type) && !ggml_is_transposed(weights);
}

bool is_product(const ggml_tensor * op) {
    return op->op == GGML_OP_MUL_MAT_ID ||
           (op->op == GGML_OP_MUL_MAT && ggml_get_op_params_i32(op, 1) != GGML_HINT_SRC0_IS_HADAMARD);
}

}  // namespace

Kernel * row_product_for(const ggml_tensor * op) {
    const ggml_tensor * const weights = op->src[0];
    if (!is_product(op) || !has_rows_of_floats(op->src[1]) || !has_rows_of_floats(op) || !in_plain_memory(weights) ||
        !has_whole_rows(weights)) {
        return nullptr;
    }
    if (Kernel * const kernel = bf16_product_for(weights)) {
        return kernel;
    }
    Kernel * const kernel = converted_product_for(weights->type);
    return kernel ? kernel : float_product_for(weights->type);
}

}  // namespace pyg::kernels
