// GELU, alone or times another tensor's values (GEGLU), by tanh or by erf.
//
// Upstream looks results up in a table of 16-bit floats, value by value, or calls erff for each.
#include "kernels/backend/kernel.hpp"
#include "kernels/simd/vector.hpp"

#ifdef PYG_FLOATS8
#    include "kernels/simd/vector_math.hpp"

namespace pyg::kernels {
namespace {

struct ByTanh {
    template <typename Vector>
    static Vector of(Vector x) {
        return gelu_tanh(x);
    }
};

struct ByErf {
    template <typename Vector>
    static Vector of(Vector x) {
        return gelu_erf(x);
    }
};

// Compute GELU(x), times `gate` unless that is null. Lanes are independent, so a row's end may be padded.
template <typename Gelu>
void compute_row(const float * x, const float * gate, int64_t n, float * y) {
    constexpr int64_t LANES = WideFloats::LANES;
    const auto        some  = [](const float * x, const float * factors, float * y) {
        const WideFloats result = Gelu::of(WideFloats::load(x));
        (factors ? result * WideFloats::load(factors) : result).store(y);
    };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        some(x + i, gate ? gate + i : nullptr, y + i);
    }
    if (i < n) {
        float last[LANES] = {}, factors[LANES] = {}, results[LANES];
        std::copy(x + i, x + n, last);
        if (gate) {
            std::copy(gate + i, gate + n, factors);
        }
        some(last, gate ? factors : nullptr, results);
        std::copy_n(results, n - i, y + i);
    }
}

// The two operands of a node; the second is null without a gate.
struct Operands {
    const ggml_tensor *x, *gate;
    int64_t            first_x = 0, first_gate = 0;  // values of a row before the operand
};

Operands operands_of(const ggml_tensor * op) {
    if (op->op == GGML_OP_UNARY) {
        return {op->src[0], nullptr};
    }
    if (op->src[1]) {
        return {op->src[0], op->src[1]};
    }
    const bool is_swapped = ggml_get_op_params_i32(op, 1) != 0;
    return {op->src[0], op->src[0], is_swapped ? op->ne[0] : 0, is_swapped ? 0 : op->ne[0]};
}

template <typename Gelu>
void compute(ggml_compute_params * params, ggml_tensor * op) {
    const Operands operands = operands_of(op);
    const auto [first, end] = rows_as_upstream(params, ggml_nrows(op));
    for (int64_t i = first; i < end; ++i) {
        const float * const gate = operands.gate ? row_at(operands.gate, i) + operands.first_gate : nullptr;
        compute_row<Gelu>(row_at(operands.x, i) + operands.first_x, gate, op->ne[0],
                          const_cast<float *>(row_at(op, i)));
    }
}

bool is_by_tanh(const ggml_tensor * op) {
    return op->op == GGML_OP_GLU ? ggml_get_glu_op(op) == GGML_GLU_OP_GEGLU
                                 : ggml_get_unary_op(op) == GGML_UNARY_OP_GELU;
}

bool is_by_erf(const ggml_tensor * op) {
    return op->op == GGML_OP_GLU ? ggml_get_glu_op(op) == GGML_GLU_OP_GEGLU_ERF
                                 : ggml_get_unary_op(op) == GGML_UNARY_OP_GELU_ERF;
}

// Operations that upstream would refuse are left to it.
bool can_compute(const ggml_tensor * op) {
    const ggml_tensor *x = op->src[0], *gate = op->src[1];
    const int64_t      n = op->op == GGML_OP_GLU && !gate ? 2 * op->ne[0] : op->ne[0];
    return has_rows_of_floats(op) && has_rows_of_floats(x) && x->ne[0] == n && ggml_nrows(x) == ggml_nrows(op) &&
           (!gate || (has_rows_of_floats(gate) && ggml_are_same_shape(x, gate)));
}

}  // namespace

Kernel * gelu_for(const ggml_tensor * op) {
    static Kernel  by_tanh(no_workspace, compute<ByTanh>), by_erf(no_workspace, compute<ByErf>);
    Kernel * const kernel = is_by_tanh(op) ? &by_tanh : is_by_erf(op) ? &by_erf : nullptr;
    return kernel && can_compute(op) ? kernel : nullptr;
}

}  // namespace pyg::kernels
#else
namespace pyg::kernels {

Kernel * gelu_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels
#endif
