// Vectors of floats for attention and for products of floats, the same functions for every instruction set that has
// them.
//
// Floats8 has eight lanes. Where processors have wider registers, Wide has more lanes than that: it may be used where
// lanes have nothing to do with each other, so that a number comes out the same from either.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define PYG_FLOATS8
#    include "kernels/simd/floats8_avx2.hpp"
#    ifdef __AVX512F__
#        include "kernels/simd/floats16_avx512.hpp"
#    endif
#elif defined(__aarch64__)
#    define PYG_FLOATS8
#    include "kernels/simd/floats8_neon.hpp"
#endif

#ifdef PYG_FLOATS8
#    include <cstring>

namespace pyg::kernels {

inline float to_float(ggml_bf16_t x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float          value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

#    ifdef __AVX512F__
using Wide                    = Floats16;
constexpr bool MANY_REGISTERS = true;  // 32 of them
#    else
using Wide                    = Floats8;
constexpr bool MANY_REGISTERS = false;  // 16 of them
#    endif

}  // namespace pyg::kernels
#endif
