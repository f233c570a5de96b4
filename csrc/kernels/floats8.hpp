// Vectors of floats for attention, the same functions for every instruction set that has them.
//
// Floats8 has eight lanes. Where processors have wider registers, Wide has more lanes than that: it may be used where
// lanes have nothing to do with each other, so that a number comes out the same from either.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define PYG_FLOATS8
#    include "floats8_avx2.hpp"
#    ifdef __AVX512F__
#        include "floats16_avx512.hpp"
#    endif
#elif defined(__aarch64__)
#    define PYG_FLOATS8
#    include "floats8_neon.hpp"
#endif

#ifdef PYG_FLOATS8
namespace pyg::kernels {

#    ifdef __AVX512F__
using Wide                    = Floats16;
constexpr bool MANY_REGISTERS = true;  // 32 of them
#    else
using Wide                    = Floats8;
constexpr bool MANY_REGISTERS = false;  // 16 of them
#    endif

}  // namespace pyg::kernels
#endif
