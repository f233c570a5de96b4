// Products of weights in a trial (model/dry_run.hpp): what upstream would fail at is left to it, the rest is not
// computed.
#include "kernels/backend/dry_run.hpp"

#include "kernels/backend/c_api.h"
#include "kernels/backend/kernel.hpp"

#include <cstring>

namespace {

thread_local bool t_trying = false;

class Trial : public pyg::kernels::Kernel {
  public:
    bool work_size(int, const ggml_tensor *, size_t & size) override {
        size = 0;
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (params->ith == 0) {
            std::memset(op->data, 0, ggml_nbytes(op));
        }
        return true;
    }
};

bool is_weight(const ggml_tensor * tensor) { return tensor->op == GGML_OP_NONE && ggml_is_contiguous(tensor); }

}  // namespace

namespace pyg::kernels {

Kernel * trial_for(const ggml_tensor * op) {
    static Trial trial;
    const bool   is_product = op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID;
    const bool   is_plain =
        is_product && is_weight(op->src[0]) && has_rows_of_floats(op->src[1]) && ggml_is_contiguous(op);
    return t_trying && is_plain ? &trial : nullptr;
}

}  // namespace pyg::kernels

void pyg_kernels_try(bool is_trial) { t_trying = is_trial; }
