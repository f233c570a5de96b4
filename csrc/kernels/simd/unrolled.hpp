// Loops whose arrays are to be registers: compilers would not always unroll them in time by themselves.
#pragma once

#include <utility>

// Functions whose arrays are to be registers: among other code some would not be, and if not inlined, none.
#if defined(__GNUC__)
#    define PYG_ALONE __attribute__((noinline))
#    define PYG_INLINE __attribute__((always_inline))
#else
#    define PYG_ALONE
#    define PYG_INLINE
#endif

namespace pyg::kernels {

template <class Do, int... I>
PYG_INLINE inline void unrolled(const Do & each, std::integer_sequence<int, I...>) {
    (each(std::integral_constant<int, I>()), ...);
}

// Calls `each` with the constants 0 to N - 1.
template <int N, class Do>
PYG_INLINE inline void unrolled(const Do & each) {
    unrolled(each, std::make_integer_sequence<int, N>());
}

}  // namespace pyg::kernels
