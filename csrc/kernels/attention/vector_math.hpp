// The functions of attention, of all lanes at once. Coefficients are those of the polynomials with the least error.
#pragma once

#include "kernels/simd/floats8.hpp"

#ifdef PYG_FLOATS8
namespace pyg::kernels {

// e^x of numbers that are at most 0: exactly 1 of 0, and 0 of what is next to the least normal number.
template <typename Vector>
Vector exp_of(Vector x) {
    const auto   every   = [](float number) { return Vector::everywhere(number); };
    const Vector least   = every(-87.0f);
    const Vector clamped = if_less(x, least, least, x);
    const Vector n       = rounded(clamped * every(1.44269504f));
    // ln 2 in two parts: n times the first is exact
    const Vector r = multiply_add(n, every(2.12194440e-4f), multiply_add(n, every(-0.693359375f), clamped));
    Vector       p = every(0.00138146128f);
    p              = multiply_add(p, r, every(0.00836871006f));
    p              = multiply_add(p, r, every(0.041668389f));
    p              = multiply_add(p, r, every(0.166665211f));
    p              = multiply_add(p, r, every(0.49999994f));
    p              = multiply_add(p, r, every(1.0f));
    p              = multiply_add(p, r, every(1.0f));
    return if_less(x, least, every(0.0f), times_two_to(n, p));
}

inline float exp_of(float x) { return largest_of(exp_of(Floats8::everywhere(x))); }

// Near 0, x + x^3 times a polynomial of x^2; elsewhere from e^(-2|x|).
template <typename Vector>
Vector tanh_of(Vector x) {
    const auto   every = [](float number) { return Vector::everywhere(number); };
    const Vector size = magnitude(x), square = x * x;
    const Vector e    = exp_of(size * every(-2.0f));
    Vector       p    = every(-0.00570498686f);
    p                 = multiply_add(p, square, every(0.0206390861f));
    p                 = multiply_add(p, square, every(-0.0537397154f));
    p                 = multiply_add(p, square, every(0.133314416f));
    p                 = multiply_add(p, square, every(-0.333332807f));
    const Vector near = multiply_add(p * square, size, size);
    const Vector far  = (every(1.0f) - e) / (every(1.0f) + e);
    return with_sign_of(x, if_less(size, every(0.625f), near, far));
}

}  // namespace pyg::kernels
#endif
