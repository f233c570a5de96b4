// Selection of the kernel for MUL_MAT and MUL_MAT_ID of weights in the layout of the file.
#include "kernels/gemm/kernel_selection.hpp"

#include "ggml-backend.h"
#include "ggml-impl.h"

namespace pyg::kernels {
namespace {

// True if the tensor is in memory that the CPU reads.
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

Kernel * row_mul_mat_for(const ggml_tensor * op) {
    const ggml_tensor * const weights = op->src[0];
    if (!is_product(op) || !has_rows_of_floats(op->src[1]) || !has_rows_of_floats(op) || !in_plain_memory(weights) ||
        !has_whole_rows(weights)) {
        return nullptr;
    }
    if (Kernel * const kernel = bf16_mul_mat_for(weights)) {
        return kernel;
    }
    Kernel * const kernel = converted_mul_mat_for(weights->type);
    return kernel ? kernel : float_mul_mat_for(weights->type);
}

}  // namespace pyg::kernels
