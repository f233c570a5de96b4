// Operations common to AVX2 and AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace pyg::kernels {

// Two 16-bit sums of 16 signed bytes: of the first two of each four, and of the other two.
inline uint32_t sums_of_pairs(const int8_t * q) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(q));
    __m128i       sums  = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
    sums                = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0x4E));
    sums                = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0xB1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(sums));
}

}  // namespace pyg::kernels
