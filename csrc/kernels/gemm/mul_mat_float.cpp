// MUL_MAT and MUL_MAT_ID of float weights (F32, F16, BF16), which keep their layout in the file.
//
// Activations stay 32-bit floats; upstream rounds them to the type of the weights. BF16 weights are computed here where
// the processor has no BF16 dot product (mul_mat_converted.cpp).
#include "kernels/gemm/kernel_selection.hpp"
#include "kernels/simd/vector.hpp"

#ifdef PYG_FLOATS8
#    include "kernels/gemm/float_micro_kernel.hpp"
#    include "kernels/gemm/work_partition.hpp"

namespace pyg::kernels {
namespace {

size_t work_size(int, const ggml_tensor * op) { return WorkPartition::workspace_bytes(op); }

template <typename Value>
void compute(ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor * const weights = op->src[0];
    const ggml_tensor * const columns = op->src[1];
    start_work(params, op, params->wdata);
    const WorkPartition all(op, params->nth, static_cast<const char *>(columns->data), columns->nb, params->wdata);
    share_work(params, all, [&](const WorkItem & item) { compute_item<Value>(item, weights->nb[1], weights->ne[0]); });
}

}  // namespace

Kernel * float_mul_mat_for(ggml_type type) {
    static Kernel of_f32(work_size, compute<float>), of_f16(work_size, compute<ggml_fp16_t>);
#    ifndef PYG_BF16_PAIRS
    static Kernel of_bf16(work_size, compute<ggml_bf16_t>);
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

void multiply_floats(ggml_type type, const WorkItem & item, size_t stride, int64_t n) {
    switch (type) {
    case GGML_TYPE_F32:
        return compute_item<float>(item, stride, n);
    case GGML_TYPE_F16:
        return compute_item<ggml_fp16_t>(item, stride, n);
    default:
        return compute_item<ggml_bf16_t>(item, stride, n);
    }
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

Kernel * float_mul_mat_for(ggml_type) { return nullptr; }

}  // namespace pyg::kernels

#endif
