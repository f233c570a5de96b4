// Forced loop unrolling, so that arrays become registers.
#pragma once

#include <utility>

// PYG_NOINLINE keeps a function's arrays in registers, PYG_INLINE those of its caller.
#if defined(__GNUC__)
#    define PYG_NOINLINE __attribute__((noinline))
#    define PYG_INLINE __attribute__((always_inline))
#else
#    define PYG_NOINLINE
#    define PYG_INLINE
#endif

namespace pyg::kernels {

template <class Do, int... I>
PYG_INLINE inline void unroll(const Do & each, std::integer_sequence<int, I...>) {
    (each(std::integral_constant<int, I>()), ...);
}

// Call `each` with the constants 0 to N - 1.
template <int N, class Do>
PYG_INLINE inline void unroll(const Do & each) {
    unroll(each, std::make_integer_sequence<int, N>());
}

}  // namespace pyg::kernels
