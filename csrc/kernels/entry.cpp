// Joins ggml's CPU backend as one more of its "extra buffer types": what these can compute is offered to them first.
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "kernel.hpp"
#include "kernels.h"

namespace {

class Kernels : public ggml::cpu::extra_buffer_type {
  public:
    // Whether weights may lie in a buffer of this type for this operation: there are no such buffers.
    bool supports_op(ggml_backend_dev_t, const ggml_tensor *) override { return false; }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        switch (op->op) {
        case GGML_OP_MUL_MAT:
        case GGML_OP_MUL_MAT_ID:
            if (pyg::kernels::Kernel * const kernel = pyg::kernels::product_for(op)) {
                return kernel;
            }
            return pyg::kernels::row_product_for(op);
        case GGML_OP_FLASH_ATTN_EXT:
            return pyg::kernels::attention_for(op);
        default:
            return nullptr;
        }
    }
};

ggml_backend_buffer_type_t buffer_type() {
    static Kernels                  kernels;
    static ggml_backend_buffer_type type = [] {
        ggml_backend_buffer_type made = *ggml_backend_cpu_buffer_type();
        made.device                   = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        made.iface.get_name           = [](ggml_backend_buffer_type_t) { return "CPU_PYGGML"; };
        made.iface.is_host            = nullptr;
        made.context                  = static_cast<ggml::cpu::extra_buffer_type *>(&kernels);
        return made;
    }();
    return &type;
}

}  // namespace

void pyg_kernels_register(void) {
    std::vector<ggml_backend_buffer_type_t> & types = ggml_backend_cpu_get_extra_buffer_types();
    types.insert(types.begin(), buffer_type());
}
