// Products of weights that are floats, and stay as they are in the file.
//
// Weights meet the rows of activations as 32-bit floats; upstream rounds these to the type of the weights first. Those
// of BF16 come here where no instruction multiplies pairs of them (mul_mat_converted.cpp).
#include "kernels/gemm/kernel_selection.hpp"
#include "kernels/simd/floats8.hpp"

#ifdef PYG_FLOATS8
#    include "kernels/gemm/float_micro_kernel.hpp"
#    include "kernels/gemm/work_partition.hpp"

namespace pyg::kernels {
namespace {

template <typename Value>
class FloatProduct : public Kernel {
  public:
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = Pieces::workspace_bytes(op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const ggml_tensor * const weights = op->src[0];
        const ggml_tensor * const columns = op->src[1];
        start_work(params, op, params->wdata);
        const Pieces all(op, params->nth, static_cast<const char *>(columns->data), columns->nb, params->wdata);
        share_work(params, all,
                   [&](const Piece & piece) { compute_piece<Value>(piece, weights->nb[1], weights->ne[0]); });
        return true;
    }
};

}  // namespace

Kernel * float_product_for(ggml_type type) {
    static FloatProduct<float>       of_f32;
    static FloatProduct<ggml_fp16_t> of_f16;
#    ifndef PYG_BF16_PAIRS
    static FloatProduct<ggml_bf16_t> of_bf16;
#    endif
    switch (type) {
    case GGML_TYPE_F32:
        return &of_f32;
    case GGML_TYPE_F16:
        return &of_f16;
#    ifndef PYG_BF16_PAIRS
    case GGML_TYPE_BF16:
        return &of_bf16;
#    endif
    default:
        return nullptr;
    }
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

Kernel * float_product_for(ggml_type) { return nullptr; }

}  // namespace pyg::kernels

#endif
