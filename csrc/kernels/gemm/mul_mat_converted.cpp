// MUL_MAT and MUL_MAT_ID with converted activations, for weights in the layout of the file: BF16 where the processor
// has a BF16 dot product, and quantised types without a packed layout.
#include "ggml-cpu.h"
#include "kernels/gemm/kernel_selection.hpp"
#include "kernels/gemm/work_partition.hpp"
#include "kernels/simd/vector.hpp"

#ifdef PYG_BF16_PAIRS
#    include "kernels/gemm/float_micro_kernel.hpp"
#endif

namespace pyg::kernels {
namespace {

// Type of the converted activations.
ggml_type activation_type(const ggml_tensor * op) { return ggml_get_type_traits_cpu(op->src[0]->type)->vec_dot_type; }

// Bytes of a converted row: an odd number of cache lines, so that rows do not map to the same cache sets.
size_t converted_row_bytes(const ggml_tensor * op) {
    constexpr size_t LINE = 64;
    return GGML_PAD(ggml_row_size(activation_type(op), op->src[1]->ne[0]), LINE) | LINE;
}

// Convert this thread's blocks of every row, to rows of `row` bytes.
void convert(const ggml_compute_params * params, const ggml_tensor * op, size_t row) {
    const ggml_tensor * const columns    = op->src[1];
    const ggml_type           type       = activation_type(op);
    const ggml_from_float_t   from_float = ggml_get_type_traits_cpu(type)->from_float;
    const int64_t             block      = ggml_blck_size(type);
    const auto [begin, end]              = share_of(params, columns->ne[0] / block);
    for (int64_t i = 0; begin < end && i < ggml_nrows(columns); ++i) {
        const float * const values = row_at(columns, i);
        char * const        out    = static_cast<char *>(params->wdata) + i * row + begin * ggml_type_size(type);
        from_float(values + begin * block, out, (end - begin) * block);
    }
}

// The workspace holds the converted activations, then the work partition.
size_t converted_bytes(const ggml_tensor * op) { return converted_row_bytes(op) * ggml_nrows(op->src[1]); }

size_t work_size(int, const ggml_tensor * op) { return converted_bytes(op) + WorkPartition::workspace_bytes(op); }

template <void (*compute_one)(const WorkItem & item, const ggml_tensor * weights)>
void compute(ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor * const x          = op->src[1];
    const size_t              row        = converted_row_bytes(op);
    const size_t              strides[4] = {0, row, row * x->ne[1], row * x->ne[1] * x->ne[2]};
    char * const              converted  = static_cast<char *>(params->wdata);
    convert(params, op, row);
    start_work(params, op, converted + converted_bytes(op));
    const WorkPartition all(op, params->nth, converted, strides, converted + converted_bytes(op));
    share_work(params, all, [&](const WorkItem & item) { compute_one(item, op->src[0]); });
}

// Upstream's vec_dot, one result at a time.
void compute_row_by_row(const WorkItem & item, const ggml_tensor * weights) {
    const ggml_vec_dot_t dot = ggml_get_type_traits_cpu(weights->type)->vec_dot;
    for (int64_t r = 0; r < item.n_rows; ++r) {
        for (int64_t c = 0; c < item.n_columns; ++c) {
            dot(static_cast<int>(weights->ne[0]), item.results[c] + r, 0, item.weights + r * weights->nb[1], 0,
                item.columns[c], 0, 1);
        }
    }
}

#ifdef PYG_BF16_PAIRS
void compute_bf16_pairs(const WorkItem & item, const ggml_tensor * weights) {
    compute_item<ggml_bf16_t, RowOfPairs>(item, weights->nb[1], weights->ne[0]);
}
#endif

}  // namespace

Kernel * converted_mul_mat_for(ggml_type type) {
#ifdef PYG_BF16_PAIRS
    static Kernel pairs(work_size, compute<compute_bf16_pairs>);
    if (type == GGML_TYPE_BF16) {
        return &pairs;
    }
#endif
    static Kernel                      row_by_row(work_size, compute<compute_row_by_row>);
    const ggml_type_traits_cpu * const traits    = ggml_get_type_traits_cpu(type);
    const bool                         quantised = ggml_is_quantized(type) && traits->vec_dot != nullptr;
    return quantised && ggml_get_type_traits_cpu(traits->vec_dot_type)->from_float != nullptr ? &row_by_row : nullptr;
}

}  // namespace pyg::kernels
