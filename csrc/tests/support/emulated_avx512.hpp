// AVX-512 instructions used by kernels, lane by lane in plain C++: exact, and slow. Included before a test of vectors,
// it runs the AVX-512 code on processors with AVX2 (tools/test_kernels.py).
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace modelled {

// A register as integers, floats or doubles.
template <int KIND>
struct Register {
    alignas(64) uint8_t bytes[64] = {};

    template <class Lane>
    Lane get(int i) const {
        Lane lane;
        std::memcpy(&lane, bytes + i * sizeof(Lane), sizeof(Lane));
        return lane;
    }
};

using Ints    = Register<0>;
using Floats  = Register<1>;
using Doubles = Register<2>;

template <class To, class From>
To bits_as(const From & x) {
    To y;
    std::memcpy(y.bytes, x.bytes, sizeof(y));
    return y;
}

// Apply `function` to each lane.
template <class To, class Lane, class Function>
To each(const Function & function) {
    To y;
    for (int i = 0; i < int(64 / sizeof(Lane)); ++i) {
        const Lane lane = static_cast<Lane>(function(i));
        std::memcpy(y.bytes + i * sizeof(Lane), &lane, sizeof(Lane));
    }
    return y;
}

// The `i`-th part, as a smaller register.
template <class Lane, class From>
Lane part(const From & x, int i) {
    Lane lane;
    std::memcpy(&lane, reinterpret_cast<const char *>(&x) + i * sizeof(Lane), sizeof(Lane));
    return lane;
}

inline uint32_t four_products(const Ints & x, const Ints & y, int i) {
    int sum = 0;
    for (int j = 4 * i; j < 4 * i + 4; ++j) {
        sum += x.get<uint8_t>(j) * y.get<int8_t>(j);
    }
    return static_cast<uint32_t>(sum);
}

inline Ints add_epi8(Ints x, Ints y) {
    return each<Ints, uint8_t>([&](int i) { return x.get<uint8_t>(i) + y.get<uint8_t>(i); });
}

inline Ints add_epi16(Ints x, Ints y) {
    return each<Ints, uint16_t>([&](int i) { return x.get<uint16_t>(i) + y.get<uint16_t>(i); });
}

inline Ints add_epi32(Ints x, Ints y) {
    return each<Ints, uint32_t>([&](int i) { return x.get<uint32_t>(i) + y.get<uint32_t>(i); });
}

inline Ints sub_epi16(Ints x, Ints y) {
    return each<Ints, uint16_t>([&](int i) { return x.get<uint16_t>(i) - y.get<uint16_t>(i); });
}

inline Ints mullo_epi16(Ints x, Ints y) {
    return each<Ints, uint16_t>([&](int i) { return uint32_t{x.get<uint16_t>(i)} * y.get<uint16_t>(i); });
}

inline Ints mullo_epi32(Ints x, Ints y) {
    return each<Ints, uint32_t>([&](int i) { return x.get<uint32_t>(i) * y.get<uint32_t>(i); });
}

inline Ints and_si512(Ints x, Ints y) {
    return each<Ints, uint32_t>([&](int i) { return x.get<uint32_t>(i) & y.get<uint32_t>(i); });
}

inline Ints or_si512(Ints x, Ints y) {
    return each<Ints, uint32_t>([&](int i) { return x.get<uint32_t>(i) | y.get<uint32_t>(i); });
}

inline Ints xor_si512(Ints x, Ints y) {
    return each<Ints, uint32_t>([&](int i) { return x.get<uint32_t>(i) ^ y.get<uint32_t>(i); });
}

// Each bit of the result is bit `4 * x + 2 * y + z` of `table`.
inline Ints ternarylogic_epi32(Ints x, Ints y, Ints z, int table) {
    return each<Ints, uint32_t>([&](int i) {
        const uint32_t a = x.get<uint32_t>(i), b = y.get<uint32_t>(i), c = z.get<uint32_t>(i);
        uint32_t       bits = 0;
        for (int row = 0; row < 8; ++row) {
            if (table >> row & 1) {
                bits |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
            }
        }
        return bits;
    });
}

inline Ints max_epi32(Ints x, Ints y) {
    return each<Ints, int32_t>([&](int i) { return std::max(x.get<int32_t>(i), y.get<int32_t>(i)); });
}

inline Floats add_ps(Floats x, Floats y) {
    return each<Floats, float>([&](int i) { return x.get<float>(i) + y.get<float>(i); });
}

inline Floats sub_ps(Floats x, Floats y) {
    return each<Floats, float>([&](int i) { return x.get<float>(i) - y.get<float>(i); });
}

inline Floats mul_ps(Floats x, Floats y) {
    return each<Floats, float>([&](int i) { return x.get<float>(i) * y.get<float>(i); });
}

inline Floats div_ps(Floats x, Floats y) {
    return each<Floats, float>([&](int i) { return x.get<float>(i) / y.get<float>(i); });
}

inline Floats max_ps(Floats x, Floats y) {
    return each<Floats, float>(
        [&](int i) { return x.get<float>(i) > y.get<float>(i) ? x.get<float>(i) : y.get<float>(i); });
}

inline Ints slli_epi16(Ints x, unsigned by) {
    return each<Ints, uint16_t>([&](int i) { return by > 15 ? 0 : x.get<uint16_t>(i) << by; });
}

inline Ints srli_epi16(Ints x, unsigned by) {
    return each<Ints, uint16_t>([&](int i) { return by > 15 ? 0 : x.get<uint16_t>(i) >> by; });
}

inline Ints slli_epi32(Ints x, unsigned by) {
    return each<Ints, uint32_t>([&](int i) { return by > 31 ? 0 : x.get<uint32_t>(i) << by; });
}

inline Ints srli_epi32(Ints x, unsigned by) {
    return each<Ints, uint32_t>([&](int i) { return by > 31 ? 0 : x.get<uint32_t>(i) >> by; });
}

inline Ints srai_epi16(Ints x, unsigned by) {
    return each<Ints, int16_t>([&](int i) { return x.get<int16_t>(i) >> std::min(by, 15u); });
}

inline Floats abs_ps(Floats x) {
    return each<Floats, float>([&](int i) { return std::fabs(x.get<float>(i)); });
}

inline Floats fmadd_ps(Floats x, Floats y, Floats z) {
    return each<Floats, float>([&](int i) { return std::fma(x.get<float>(i), y.get<float>(i), z.get<float>(i)); });
}

// Flush subnormal numbers to zero.
inline float without_smallest(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

inline float of_bf16(uint16_t upper) {
    const uint32_t bits = uint32_t(upper) << 16;
    float          value;
    std::memcpy(&value, &bits, sizeof(value));
    return without_smallest(value);
}

// The second product of each pair first.
inline Floats dpbf16_ps(Floats z, Ints x, Ints y) {
    return each<Floats, float>([&](int i) {
        float sum = z.get<float>(i);
        for (const int j : {2 * i + 1, 2 * i}) {
            sum = without_smallest(sum + of_bf16(x.get<uint16_t>(j)) * of_bf16(y.get<uint16_t>(j)));
        }
        return sum;
    });
}

// Rounds to integers only.
inline Floats roundscale_ps(Floats x, int) {
    return each<Floats, float>([&](int i) { return std::nearbyint(x.get<float>(i)); });
}

inline Ints madd_epi16(Ints x, Ints y) {
    return each<Ints, uint32_t>([&](int i) {
        const auto product = [&](int j) { return uint32_t(x.get<int16_t>(j) * y.get<int16_t>(j)); };
        return product(2 * i) + product(2 * i + 1);
    });
}

inline Ints maddubs_epi16(Ints x, Ints y) {
    return each<Ints, int16_t>([&](int i) {
        const auto product = [&](int j) { return x.get<uint8_t>(j) * y.get<int8_t>(j); };
        return std::clamp(product(2 * i) + product(2 * i + 1), -32768, 32767);
    });
}

inline Ints dpbusd_epi32(Ints sums, Ints x, Ints y) {
    return each<Ints, uint32_t>([&](int i) { return sums.get<uint32_t>(i) + four_products(x, y, i); });
}

inline Ints shuffle_epi8(Ints x, Ints places) {
    return each<Ints, uint8_t>([&](int i) {
        const uint8_t place = places.get<uint8_t>(i);
        return place & 0x80 ? 0 : x.get<uint8_t>(i / 16 * 16 + place % 16);
    });
}

inline Ints permutex2var_epi16(Ints x, Ints places, Ints y) {
    return each<Ints, uint16_t>([&](int i) {
        const int place = places.get<uint16_t>(i) % 64;
        return place < 32 ? x.get<uint16_t>(place) : y.get<uint16_t>(place - 32);
    });
}

inline Floats permutexvar_ps(Ints places, Floats x) {
    return each<Floats, float>([&](int i) { return x.get<float>(places.get<int>(i) % 16); });
}

// The same two bits of `which` for each lane of a quarter.
inline Floats shuffle_ps(Floats x, Floats y, int which) {
    return each<Floats, float>([&](int i) {
        const int from = which >> 2 * (i % 4) & 3;
        return (i % 4 < 2 ? x : y).get<float>(i / 4 * 4 + from);
    });
}

inline Floats permute_ps(Floats x, int which) { return shuffle_ps(x, x, which); }

inline Floats shuffle_f32x4(Floats x, Floats y, int which) {
    return each<Floats, float>(
        [&](int i) { return (i < 8 ? x : y).get<float>((which >> 2 * (i / 4) & 3) * 4 + i % 4); });
}

inline void mask_storeu_ps(float * to, unsigned mask, __m256 x) {
    float lanes[8];
    _mm256_storeu_ps(lanes, x);
    for (int i = 0; i < 8; ++i) {
        if (mask >> i & 1) {
            to[i] = lanes[i];
        }
    }
}

inline Ints setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, int m, int n,
                       int o, int p) {
    const int lanes[] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
    return each<Ints, int>([&](int lane) { return lanes[lane]; });
}

inline uint64_t test_epi8_mask(Ints x, Ints y) {
    uint64_t mask = 0;
    for (int i = 0; i < 64; ++i) {
        mask |= uint64_t((x.get<uint8_t>(i) & y.get<uint8_t>(i)) != 0) << i;
    }
    return mask;
}

// x < y, or one of them is NaN.
inline uint16_t cmp_ps_mask(Floats x, Floats y, int which) {
    unsigned mask = 0;
    for (int i = 0; i < 16; ++i) {
        const float a = x.get<float>(i), b = y.get<float>(i);
        mask |= unsigned(which == _CMP_UNORD_Q ? std::isunordered(a, b) : a < b) << i;
    }
    return static_cast<uint16_t>(mask);
}

inline Ints maskz_mov_epi8(uint64_t mask, Ints x) {
    return each<Ints, uint8_t>([&](int i) { return mask >> i & 1 ? x.get<uint8_t>(i) : 0; });
}

inline Ints mask_blend_epi16(uint32_t mask, Ints x, Ints y) {
    return each<Ints, uint16_t>([&](int i) { return (mask >> i & 1 ? y : x).get<uint16_t>(i); });
}

inline Floats mask_blend_ps(uint16_t mask, Floats x, Floats y) {
    return each<Floats, float>([&](int i) { return (mask >> i & 1 ? y : x).get<float>(i); });
}

inline Ints setzero_si512() { return {}; }

inline Ints set1_epi8(char x) {
    return each<Ints, char>([&](int) { return x; });
}

inline Ints set1_epi32(int x) {
    return each<Ints, int>([&](int) { return x; });
}

inline Floats set1_ps(float x) {
    return each<Floats, float>([&](int) { return x; });
}

inline Ints set4_epi32(int d, int c, int b, int a) {
    const int four[] = {a, b, c, d};
    return each<Ints, int>([&](int i) { return four[i % 4]; });
}

inline Ints broadcast_i32x4(__m128i x) {
    return each<Ints, uint8_t>([&](int i) { return part<uint8_t>(x, i % 16); });
}

inline Ints cvtepi8_epi32(__m128i x) {
    return each<Ints, int32_t>([&](int i) { return part<int8_t>(x, i); });
}

inline Ints cvtepu8_epi32(__m128i x) {
    return each<Ints, int32_t>([&](int i) { return part<uint8_t>(x, i); });
}

inline Ints cvtepu16_epi32(__m256i x) {
    return each<Ints, int32_t>([&](int i) { return part<uint16_t>(x, i); });
}

inline Floats cvtepi32_ps(Ints x) {
    return each<Floats, float>([&](int i) { return static_cast<float>(x.get<int32_t>(i)); });
}

inline Ints cvtps_epi32(Floats x) {
    return each<Ints, int32_t>([&](int i) {
        const float whole = std::nearbyint(x.get<float>(i));
        return whole >= -0x1p31f && whole < 0x1p31f ? static_cast<int32_t>(whole) : INT32_MIN;
    });
}

inline Floats cvtph_ps(__m256i halves) {
    return each<Floats, float>([&](int i) { return _cvtsh_ss(part<uint16_t>(halves, i)); });
}

inline __m128i cvtsepi32_epi8(Ints x) {
    alignas(16) int8_t bytes[16];
    for (int i = 0; i < 16; ++i) {
        bytes[i] = static_cast<int8_t>(std::clamp(x.get<int32_t>(i), -128, 127));
    }
    return _mm_load_si128(reinterpret_cast<const __m128i *>(bytes));
}

inline __m256i cvtsepi32_epi16(Ints x) {
    alignas(32) int16_t words[16];
    for (int i = 0; i < 16; ++i) {
        words[i] = static_cast<int16_t>(std::clamp(x.get<int32_t>(i), -32768, 32767));
    }
    return _mm256_load_si256(reinterpret_cast<const __m256i *>(words));
}

inline int reduce_max_epi32(Ints x) {
    int most = x.get<int>(0);
    for (int i = 1; i < 16; ++i) {
        most = std::max(most, x.get<int>(i));
    }
    return most;
}

inline Ints castps_si512(Floats x) { return bits_as<Ints>(x); }

inline Floats castsi512_ps(Ints x) { return bits_as<Floats>(x); }

inline Doubles castps_pd(Floats x) { return bits_as<Doubles>(x); }

inline Floats castpd_ps(Doubles x) { return bits_as<Floats>(x); }

inline Floats castps256_ps512(__m256 half) {
    Floats x{};
    std::memcpy(x.bytes, &half, sizeof(half));
    return x;
}

inline __m256 castps512_ps256(Floats x) {
    __m256 half;
    std::memcpy(&half, x.bytes, sizeof(half));
    return half;
}

inline __m256d extractf64x4_pd(Doubles x, int which) {
    __m256d half;
    std::memcpy(&half, x.bytes + 32 * which, sizeof(half));
    return half;
}

inline Doubles insertf64x4(Doubles x, __m256d half, int which) {
    std::memcpy(x.bytes + 32 * which, &half, sizeof(half));
    return x;
}

inline Doubles broadcast_f64x4(__m256d half) { return insertf64x4(insertf64x4(Doubles{}, half, 0), half, 1); }

inline Ints loadu_si512(const void * from) {
    Ints x;
    std::memcpy(x.bytes, from, sizeof(x));
    return x;
}

inline void storeu_si512(void * to, Ints x) { std::memcpy(to, x.bytes, sizeof(x)); }

inline Floats loadu_ps(const float * from) {
    Floats x;
    std::memcpy(x.bytes, from, sizeof(x));
    return x;
}

inline void storeu_ps(float * to, Floats x) { std::memcpy(to, x.bytes, sizeof(x)); }

}  // namespace modelled

#define PYG_MODELLED
#define __m512i modelled::Ints
#define __m512 modelled::Floats
#define __m512d modelled::Doubles
#define __m512bh modelled::Ints

#undef _mm256_mask_storeu_ps
#define _mm256_mask_storeu_ps modelled::mask_storeu_ps
#undef _mm512_abs_ps
#define _mm512_abs_ps modelled::abs_ps
#undef _mm512_add_epi16
#define _mm512_add_epi16 modelled::add_epi16
#undef _mm512_add_epi32
#define _mm512_add_epi32 modelled::add_epi32
#undef _mm512_add_epi8
#define _mm512_add_epi8 modelled::add_epi8
#undef _mm512_add_ps
#define _mm512_add_ps modelled::add_ps
#undef _mm512_and_si512
#define _mm512_and_si512 modelled::and_si512
#undef _mm512_broadcast_f64x4
#define _mm512_broadcast_f64x4 modelled::broadcast_f64x4
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 modelled::broadcast_i32x4
#undef _mm512_castpd_ps
#define _mm512_castpd_ps modelled::castpd_ps
#undef _mm512_castps256_ps512
#define _mm512_castps256_ps512 modelled::castps256_ps512
#undef _mm512_castps512_ps256
#define _mm512_castps512_ps256 modelled::castps512_ps256
#undef _mm512_castps_pd
#define _mm512_castps_pd modelled::castps_pd
#undef _mm512_castps_si512
#define _mm512_castps_si512 modelled::castps_si512
#undef _mm512_castsi512_ps
#define _mm512_castsi512_ps modelled::castsi512_ps
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask modelled::cmp_ps_mask
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps modelled::cvtepi32_ps
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 modelled::cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 modelled::cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32 modelled::cvtepu8_epi32
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps modelled::cvtph_ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 modelled::cvtps_epi32
#undef _mm512_cvtsepi32_epi16
#define _mm512_cvtsepi32_epi16 modelled::cvtsepi32_epi16
#undef _mm512_cvtsepi32_epi8
#define _mm512_cvtsepi32_epi8 modelled::cvtsepi32_epi8
#undef _mm512_div_ps
#define _mm512_div_ps modelled::div_ps
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 modelled::dpbusd_epi32
#undef _mm512_extractf64x4_pd
#define _mm512_extractf64x4_pd modelled::extractf64x4_pd
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps modelled::dpbf16_ps
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps modelled::fmadd_ps
#undef _mm512_insertf64x4
#define _mm512_insertf64x4 modelled::insertf64x4
#undef _mm512_loadu_ps
#define _mm512_loadu_ps modelled::loadu_ps
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 modelled::loadu_si512
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 modelled::madd_epi16
#undef _mm512_maddubs_epi16
#define _mm512_maddubs_epi16 modelled::maddubs_epi16
#undef _mm512_mask_blend_epi16
#define _mm512_mask_blend_epi16 modelled::mask_blend_epi16
#undef _mm512_mask_blend_ps
#define _mm512_mask_blend_ps modelled::mask_blend_ps
#undef _mm512_maskz_mov_epi8
#define _mm512_maskz_mov_epi8 modelled::maskz_mov_epi8
#undef _mm512_max_epi32
#define _mm512_max_epi32 modelled::max_epi32
#undef _mm512_max_ps
#define _mm512_max_ps modelled::max_ps
#undef _mm512_mul_ps
#define _mm512_mul_ps modelled::mul_ps
#undef _mm512_mullo_epi16
#define _mm512_mullo_epi16 modelled::mullo_epi16
#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 modelled::mullo_epi32
#undef _mm512_or_si512
#define _mm512_or_si512 modelled::or_si512
#undef _mm512_permute_ps
#define _mm512_permute_ps modelled::permute_ps
#undef _mm512_permutex2var_epi16
#define _mm512_permutex2var_epi16 modelled::permutex2var_epi16
#undef _mm512_permutexvar_ps
#define _mm512_permutexvar_ps modelled::permutexvar_ps
#undef _mm512_reduce_max_epi32
#define _mm512_reduce_max_epi32 modelled::reduce_max_epi32
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps modelled::roundscale_ps
#undef _mm512_set1_epi32
#define _mm512_set1_epi32 modelled::set1_epi32
#undef _mm512_set1_epi8
#define _mm512_set1_epi8 modelled::set1_epi8
#undef _mm512_set1_ps
#define _mm512_set1_ps modelled::set1_ps
#undef _mm512_set4_epi32
#define _mm512_set4_epi32 modelled::set4_epi32
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 modelled::setr_epi32
#undef _mm512_setzero_si512
#define _mm512_setzero_si512 modelled::setzero_si512
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 modelled::shuffle_epi8
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4 modelled::shuffle_f32x4
#undef _mm512_shuffle_ps
#define _mm512_shuffle_ps modelled::shuffle_ps
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 modelled::slli_epi16
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 modelled::slli_epi32
#undef _mm512_srai_epi16
#define _mm512_srai_epi16 modelled::srai_epi16
#undef _mm512_srl_epi16
#define _mm512_srl_epi16(x, by) modelled::srli_epi16(x, static_cast<unsigned>(_mm_cvtsi128_si32(by)))
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 modelled::srli_epi16
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 modelled::srli_epi32
#undef _mm512_storeu_ps
#define _mm512_storeu_ps modelled::storeu_ps
#undef _mm512_storeu_si512
#define _mm512_storeu_si512 modelled::storeu_si512
#undef _mm512_sub_epi16
#define _mm512_sub_epi16 modelled::sub_epi16
#undef _mm512_sub_ps
#define _mm512_sub_ps modelled::sub_ps
#undef _mm512_ternarylogic_epi32
#define _mm512_ternarylogic_epi32 modelled::ternarylogic_epi32
#undef _mm512_test_epi8_mask
#define _mm512_test_epi8_mask modelled::test_epi8_mask
#undef _mm512_xor_si512
#define _mm512_xor_si512 modelled::xor_si512

// After the compiler's own header, which would use the real instructions.
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512VL__ 1
#ifdef PYG_MODELLED_VNNI
#    define __AVX512VNNI__ 1
#endif
