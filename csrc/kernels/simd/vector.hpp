// Integer vectors and byte dot products of the instruction set that this file is compiled for.
#pragma once

#include "kernels/simd/unroll.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#    define PYG_QGEMM
#    include "kernels/simd/vector_avx512.hpp"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define PYG_QGEMM
#    include "kernels/simd/vector_avx2.hpp"
#elif defined(__ARM_NEON) && defined(__ARM_FEATURE_DOTPROD)
#    define PYG_QGEMM
#    include "kernels/simd/vector_neon.hpp"
#endif

#ifdef PYG_DOT4
#    include "kernels/simd/dot4_bytes.hpp"
#elif defined(PYG_QGEMM)
#    include "kernels/simd/dot2_bytes.hpp"
#endif
