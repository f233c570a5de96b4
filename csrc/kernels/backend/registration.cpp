// Registration with ggml's CPU backend, as one of its "extra buffer types": it offers them every node first.
#include "kernels/attention/stored_keys.hpp"
#include "kernels/backend/c_api.h"
#include "kernels/backend/kernel.hpp"
#include "kernels/qgemm/packed_buffer.hpp"
#include "kernels/simd/vector.hpp"

#ifdef PYG_AMX
#    include "kernels/simd/amx.hpp"
#endif

namespace {

class Kernels : public ggml::cpu::extra_buffer_type {
  public:
    // Asked about operations on packed weights.
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        return pyg::kernels::supports_packed_op(op);
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        if (ggml_is_empty(op)) {  // on a device without a part of a split tensor
            return nullptr;
        }
        if (pyg::kernels::Kernel * const trial = pyg::kernels::dry_run_for(op)) {
            return trial;
        }
        switch (op->op) {
        case GGML_OP_MUL_MAT:
        case GGML_OP_MUL_MAT_ID:
            if (pyg::kernels::Kernel * const kernel = pyg::kernels::packed_mul_mat_for(op)) {
                return kernel;
            }
            return pyg::kernels::row_mul_mat_for(op);
        case GGML_OP_FLASH_ATTN_EXT:
            return pyg::kernels::attention_for(op);
        case GGML_OP_RMS_NORM:
            return pyg::kernels::norm_for(op);
        case GGML_OP_UNARY:
        case GGML_OP_GLU:
            return pyg::kernels::gelu_for(op);
        default:
            return nullptr;
        }
    }
};

Kernels & all_kernels() {
    static Kernels kernels;
    return kernels;
}

bool g_are_registered = false;

}  // namespace

bool pyg::kernels::are_registered() { return g_are_registered; }

void pyg_kernels_register(void) {
    g_are_registered = true;
#ifdef PYG_AMX
    pyg::kernels::amx::request_permission();
#endif
    std::vector<ggml_backend_buffer_type_t> & types = ggml_backend_cpu_get_extra_buffer_types();
#ifdef PYG_QGEMM
    types.clear();  // upstream's repacked layouts are not batch-invariant
#endif
    types.insert(types.begin(),
                 pyg::kernels::packed_buffer_type(static_cast<ggml::cpu::extra_buffer_type *>(&all_kernels())));
}

bool pyg_kernels_cover(const ggml_tensor * op) {
    return all_kernels().get_tensor_traits(op) &&
           (op->op != GGML_OP_FLASH_ATTN_EXT || pyg::kernels::has_cell_order(op->src[1]));
}

bool pyg_kernels_exist(void) {
#ifdef PYG_QGEMM
    return true;
#else
    return false;
#endif
}
