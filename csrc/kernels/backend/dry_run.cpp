// Matrix products in a dry run (model/dry_run.hpp): those that upstream would refuse are left to it, others are zero.
#include "kernels/backend/c_api.h"
#include "kernels/backend/kernel.hpp"

#include <cstring>

namespace {

thread_local bool t_is_dry_run = false;

void set_to_zero(ggml_compute_params * params, ggml_tensor * op) {
    if (params->ith == 0) {
        std::memset(op->data, 0, ggml_nbytes(op));
    }
}

bool is_weight(const ggml_tensor * tensor) { return tensor->op == GGML_OP_NONE && ggml_is_contiguous(tensor); }

}  // namespace

namespace pyg::kernels {

Kernel * dry_run_for(const ggml_tensor * op) {
    static Kernel trial(no_workspace, set_to_zero);
    const bool    is_product = op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID;
    const bool    is_plain =
        is_product && is_weight(op->src[0]) && has_rows_of_floats(op->src[1]) && ggml_is_contiguous(op);
    return t_is_dry_run && is_plain ? &trial : nullptr;
}

}  // namespace pyg::kernels

void pyg_kernels_try(bool is_trial) { t_is_dry_run = is_trial; }
