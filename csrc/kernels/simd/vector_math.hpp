// Vectorised exp, tanh and GELU, by minimax polynomials.
#pragma once

#include "kernels/simd/vector.hpp"

namespace pyg::kernels {

// e^x for x <= 0: exactly 1 for 0, and 0 where the result would be subnormal.
template <typename Vector>
Vector exp_approx(Vector x) {
    const auto   every   = [](float number) { return Vector::set1(number); };
    const Vector least   = every(-87.0f);
    const Vector clamped = select_less(x, least, least, x);
    const Vector n       = round_nearest(clamped * every(1.44269504f));
    // ln 2 in two parts: n times the first is exact
    const Vector r = multiply_add(n, every(2.12194440e-4f), multiply_add(n, every(-0.693359375f), clamped));
    Vector       p = every(0.00138146128f);
    p              = multiply_add(p, r, every(0.00836871006f));
    p              = multiply_add(p, r, every(0.041668389f));
    p              = multiply_add(p, r, every(0.166665211f));
    p              = multiply_add(p, r, every(0.49999994f));
    p              = multiply_add(p, r, every(1.0f));
    p              = multiply_add(p, r, every(1.0f));
    return select_less(x, least, every(0.0f), ldexp_of(n, p));
}

inline float exp_approx(float x) { return reduce_max(exp_approx(Floats8::set1(x))); }

// Near 0, x + x^3 times a polynomial of x^2; elsewhere from e^(-2|x|).
template <typename Vector>
Vector tanh_approx(Vector x) {
    const auto   every = [](float number) { return Vector::set1(number); };
    const Vector size = magnitude(x), square = x * x;
    const Vector e    = exp_approx(size * every(-2.0f));
    Vector       p    = every(-0.00570498686f);
    p                 = multiply_add(p, square, every(0.0206390861f));
    p                 = multiply_add(p, square, every(-0.0537397154f));
    p                 = multiply_add(p, square, every(0.133314416f));
    p                 = multiply_add(p, square, every(-0.333332807f));
    const Vector near = multiply_add(p * square, size, size);
    const Vector far  = (every(1.0f) - e) / (every(1.0f) + e);
    return copy_sign(x, select_less(size, every(0.625f), near, far));
}

// Zero below this: x times the normal distribution's share is then below the rounding of any sum with it.
constexpr float LEAST_GELU = -10.0f;

// GELU by tanh: x (1 + tanh(u)) / 2 is x / (1 + e^(-2u)), here with e^(-2|u|), which does not overflow.
template <typename Vector>
Vector gelu_tanh(Vector x) {
    const auto   every = [](float number) { return Vector::set1(number); };
    const Vector cubic = multiply_add(x * x, every(0.044715f), every(1.0f));
    const Vector u     = x * cubic * every(0.79788456080286536f);
    const Vector e     = exp_approx(magnitude(u) * every(-2.0f));
    const Vector share = select_less(u, every(0.0f), e, every(1.0f)) / (e + every(1.0f));
    return select_less(x, every(LEAST_GELU), every(0.0f), x * share);
}

// GELU as defined: x times the normal distribution at x. erfc is Abramowitz and Stegun's 7.1.26, within 1.5e-7.
template <typename Vector>
Vector gelu_erf(Vector x) {
    const auto   every = [](float number) { return Vector::set1(number); };
    const Vector z     = magnitude(x) * every(0.70710678118654752f);
    const Vector t     = every(1.0f) / multiply_add(z, every(0.3275911f), every(1.0f));
    Vector       p     = every(0.5f * 1.061405429f);
    p                  = multiply_add(p, t, every(0.5f * -1.453152027f));
    p                  = multiply_add(p, t, every(0.5f * 1.421413741f));
    p                  = multiply_add(p, t, every(0.5f * -0.284496736f));
    p                  = multiply_add(p, t, every(0.5f * 0.254829592f));
    const Vector tail  = p * t * exp_approx(z * z * every(-1.0f));
    const Vector share = select_less(x, every(0.0f), tail, every(1.0f) - tail);
    return select_less(x, every(LEAST_GELU), every(0.0f), x * share);
}

}  // namespace pyg::kernels
