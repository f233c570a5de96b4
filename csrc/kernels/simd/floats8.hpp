// Float vectors for attention and float GEMM, with the same functions on every instruction set.
//
// Floats8 has eight lanes. WideFloats has more on processors with wider registers; it is for lane-wise operations,
// whose results do not depend on the width.
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
using WideFloats              = Floats16;
constexpr bool MANY_REGISTERS = true;  // 32 of them
#    else
using WideFloats              = Floats8;
constexpr bool MANY_REGISTERS = false;  // 16 of them
#    endif

}  // namespace pyg::kernels
#endif
