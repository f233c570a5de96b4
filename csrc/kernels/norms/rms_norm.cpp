// RMSNorm, alone or fused with the multiplication by weights.
//
// Upstream adds squares in one dependent chain and rounds each square to a float. Here there are eight independent
// sums, and squares are exact doubles.
#include "kernels/norms/rms_norm.h"

#include "kernels/backend/kernel.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pyg::kernels {

namespace {

constexpr int LANES = 8;

double sum_of_squares(const float * x, int64_t n) {
    double  sums[LANES] = {};
    int64_t i           = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; ++lane) {
            const double value = x[i + lane];
            sums[lane] += value * value;
        }
    }
    for (int lane = 0; i < n; ++i, ++lane) {
        const double value = x[i];
        sums[lane] += value * value;
    }
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

void scale(const float * x, float factor, int64_t n, float * y) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] * factor;
    }
}

void scale(const float * x, float factor, const float * weights, int64_t n, float * y) {
    for (int64_t i = 0; i < n; ++i) {
        y[i] = x[i] * factor * weights[i];
    }
}

// Row of `repeated` that broadcasts to row `i` of `tensor`.
const float * repeated_row(const ggml_tensor * repeated, const ggml_tensor * tensor, int64_t i) {
    const int64_t i1 = i % tensor->ne[1] % repeated->ne[1];
    const int64_t i2 = i / tensor->ne[1] % tensor->ne[2] % repeated->ne[2];
    const int64_t i3 = i / tensor->ne[1] / tensor->ne[2] % repeated->ne[3];
    return row_at(repeated, i1 + repeated->ne[1] * (i2 + repeated->ne[2] * i3));
}

float epsilon_of(const ggml_tensor * norm) {
    float epsilon;
    std::memcpy(&epsilon, norm->op_params, sizeof(epsilon));
    return epsilon;
}

// `weights` may be null.
void compute(const ggml_compute_params * params, const ggml_tensor * norm, const ggml_tensor * weights,
             const ggml_tensor * result) {
    const ggml_tensor * const x       = norm->src[0];
    const float               epsilon = epsilon_of(norm);
    const int64_t             n       = x->ne[0];
    const auto [first, end]           = rows_as_upstream(params, ggml_nrows(x));
    for (int64_t i = first; i < end; ++i) {
        const float * const row    = row_at(x, i);
        float * const       to     = const_cast<float *>(row_at(result, i));
        const float         mean   = static_cast<float>(sum_of_squares(row, n) / static_cast<double>(n));
        const float         factor = 1 / std::sqrt(mean + epsilon);
        if (weights) {
            scale(row, factor, repeated_row(weights, x, i), n, to);
        } else {
            scale(row, factor, n, to);
        }
    }
}

// Operations that upstream would refuse are left to it.
bool can_compute(const ggml_tensor * norm, const ggml_tensor * result) {
    return has_rows_of_floats(norm->src[0]) && has_rows_of_floats(result) &&
           ggml_are_same_shape(norm->src[0], result) && epsilon_of(norm) >= 0;
}

}  // namespace

Kernel * norm_for(const ggml_tensor * op) {
    static Kernel norm(no_workspace,
                       [](ggml_compute_params * params, ggml_tensor * op) { compute(params, op, nullptr, op); });
    return can_compute(op, op) ? &norm : nullptr;
}

}  // namespace pyg::kernels

bool pyg_norm_times_weights(const ggml_compute_params * params, const ggml_tensor * norm, const ggml_tensor * product) {
    using namespace pyg::kernels;
    const ggml_tensor * const weights = product->src[0] == norm ? product->src[1] : product->src[0];
    if (!are_registered() || !can_compute(norm, product) || !has_rows_of_floats(weights) ||
        weights->ne[0] != product->ne[0]) {
        return false;
    }
    compute(params, norm, weights, product);
    return true;
}
