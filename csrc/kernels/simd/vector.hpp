// Vectors of the instruction set that this file is compiled for, with the same operations on all of them.
//
// PYG_FLOATS8: attention and float GEMM have vectors: Floats8, and WideFloats, with more lanes where registers are
// wider, for lane-wise operations, whose results do not depend on the width. PYG_QGEMM: quantised weights have them
// too: Ints and Floats, with a lane for each of a group's 16 rows.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define PYG_FLOATS8
#    define PYG_QGEMM
#    if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#        define PYG_AVX512
#        include "kernels/simd/vector_avx512.hpp"
#    else
#        include "kernels/simd/vector_avx2.hpp"
#    endif
#elif defined(__aarch64__)
#    define PYG_FLOATS8
#    ifdef __ARM_FEATURE_DOTPROD
#        define PYG_QGEMM
#    endif
#    include "kernels/simd/vector_neon.hpp"
#endif

#ifdef PYG_FLOATS8
#    include <cstring>

namespace pyg::kernels {

// MICRO_KERNEL_COLUMNS and GEMV_COLUMNS: columns whose sums fit into registers. GEMM_MIN_COLUMNS: number of columns
// from which on tiles are faster. ACCUMULATORS: vectors of sums that leave registers for unpacking.
#    ifdef PYG_AVX512
using Ints                          = Ints16;
using Floats                        = Floats16;
using WideFloats                    = Floats16;
constexpr bool MANY_REGISTERS       = true;  // 32 of them
constexpr int  MICRO_KERNEL_COLUMNS = 8;
constexpr int  GEMV_COLUMNS         = 8;
constexpr int  GEMM_MIN_COLUMNS     = 24;
constexpr int  ACCUMULATORS         = 16;
#    else
using Ints                          = VectorPair<Ints8>;
using Floats                        = VectorPair<Floats8>;
using WideFloats                    = Floats8;
constexpr bool MANY_REGISTERS       = false;  // 16 of them
constexpr int  MICRO_KERNEL_COLUMNS = 4;
constexpr int  GEMV_COLUMNS         = 4;
constexpr int  GEMM_MIN_COLUMNS     = 8;
constexpr int  ACCUMULATORS         = 4;
#    endif

inline Ints zero() { return Ints::set1(0); }

// The same four bytes in every lane.
inline Ints broadcast(const void * p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return Ints::set1(bytes);
}

// Add the lanes of `x`, eight at a time, to sums of eight lanes.
inline Floats8 add_to(Floats8 sums, Floats8 x) { return sums + x; }

inline float to_float(ggml_bf16_t x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float          value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

}  // namespace pyg::kernels
#endif

#if defined(PYG_AVX512) ? defined(__AVX512VNNI__) : defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
#    define PYG_DOT4
#    include "kernels/simd/dot4_bytes.hpp"
#elif defined(PYG_QGEMM)
#    include "kernels/simd/dot2_bytes.hpp"
#endif
