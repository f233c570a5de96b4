// AVX-VNNI instruction used by kernels, lane by lane in plain C++ (see emulated_avx512.hpp).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace modelled {

inline __m256i dpbusd(__m256i sums, __m256i x, __m256i y) {
    uint32_t sum[8];
    uint8_t  without_sign[32];
    int8_t   with_sign[32];
    std::memcpy(sum, &sums, sizeof(sum));
    std::memcpy(without_sign, &x, sizeof(without_sign));
    std::memcpy(with_sign, &y, sizeof(with_sign));
    for (int i = 0; i < 32; ++i) {
        sum[i / 4] += static_cast<uint32_t>(without_sign[i] * with_sign[i]);
    }
    std::memcpy(&sums, sum, sizeof(sums));
    return sums;
}

}  // namespace modelled

#define PYG_MODELLED
#define __AVXVNNI__ 1
#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 modelled::dpbusd
