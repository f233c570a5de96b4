// AVX2: eight floats in a register.
#pragma once

#include "ggml.h"

#include <immintrin.h>

#include <cstdint>

namespace pyg::kernels {

struct Floats8 {
    static constexpr int LANES = 8;

    __m256 v;

    static Floats8 set1(float x) { return {_mm256_set1_ps(x)}; }

    static Floats8 load(const float * from) { return {_mm256_loadu_ps(from)}; }
    static Floats8 load(const ggml_fp16_t * from) {
        return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)))};
    }
    static Floats8 load(const ggml_bf16_t * from) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
    }

    void store(float * to) const { _mm256_storeu_ps(to, v); }
};

inline Floats8 operator+(Floats8 x, Floats8 y) { return {_mm256_add_ps(x.v, y.v)}; }
inline Floats8 operator-(Floats8 x, Floats8 y) { return {_mm256_sub_ps(x.v, y.v)}; }
inline Floats8 operator*(Floats8 x, Floats8 y) { return {_mm256_mul_ps(x.v, y.v)}; }
inline Floats8 operator/(Floats8 x, Floats8 y) { return {_mm256_div_ps(x.v, y.v)}; }

// x * y + z, rounded once
inline Floats8 multiply_add(Floats8 x, Floats8 y, Floats8 z) { return {_mm256_fmadd_ps(x.v, y.v, z.v)}; }

// y where x is NaN
inline Floats8 max_of(Floats8 x, Floats8 y) { return {_mm256_max_ps(x.v, y.v)}; }

// a where x < y, otherwise b
inline Floats8 select_less(Floats8 x, Floats8 y, Floats8 a, Floats8 b) {
    return {_mm256_blendv_ps(b.v, a.v, _mm256_cmp_ps(x.v, y.v, _CMP_LT_OQ))};
}

inline Floats8 magnitude(Floats8 x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v)}; }

// |x| with the sign of y, for x >= 0
inline Floats8 copy_sign(Floats8 y, Floats8 x) {
    return {_mm256_or_ps(_mm256_and_ps(_mm256_set1_ps(-0.0f), y.v), x.v)};
}

// Round to nearest, ties to even.
inline Floats8 round_nearest(Floats8 x) {
    return {_mm256_round_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// x * 2^n for integer n; x and the result must be normal.
inline Floats8 ldexp_of(Floats8 n, Floats8 x) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n.v), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.v), exponent))};
}

// Lanes [low, high) of x, and -infinity in the others.
inline Floats8 keep_lanes(Floats8 x, int low, int high) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i in   = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), lane),  //
                                             _mm256_cmpgt_epi32(_mm256_set1_epi32(high), lane));
    return {_mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x.v, _mm256_castsi256_ps(in))};
}

// Force x into a register: compilers would otherwise reload it for each use.
inline void keep_in_register([[maybe_unused]] Floats8 & x) {
#if defined(__GNUC__)
    asm("" : "+v"(x.v));
#endif
}

// All horizontal sums use this order: i and i + 4, then i and i + 2, then both.
inline float reduce_add(Floats8 x) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
    const __m128 two  = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Store reduce_add() of four vectors.
inline void store_reduced(float * to, Floats8 a, Floats8 b, Floats8 c, Floats8 d) {
    const __m256 ac  = _mm256_add_ps(_mm256_permute2f128_ps(a.v, c.v, 0x20), _mm256_permute2f128_ps(a.v, c.v, 0x31));
    const __m256 bd  = _mm256_add_ps(_mm256_permute2f128_ps(b.v, d.v, 0x20), _mm256_permute2f128_ps(b.v, d.v, 0x31));
    const __m256 two = _mm256_add_ps(_mm256_unpacklo_ps(ac, bd), _mm256_unpackhi_ps(ac, bd));  // a b a b, c d c d
    const __m256 one = _mm256_add_ps(two, _mm256_permute_ps(two, 0x4E));
    _mm_storeu_ps(to, _mm_movelh_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
}

inline float reduce_max(Floats8 x) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
    const __m128 two  = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Add eight lanes to a sum of eight lanes.
inline Floats8 add_to(Floats8 sums, Floats8 x) { return sums + x; }

// Bit mask of the 32 half floats that equal `value` bitwise.
inline uint32_t equal_mask(const uint16_t * values, uint16_t value) {
    const __m256i wanted = _mm256_set1_epi16(static_cast<int16_t>(value));
    const auto    at     = reinterpret_cast<const __m256i *>(values);
    const __m256i first  = _mm256_cmpeq_epi16(_mm256_loadu_si256(at), wanted);
    const __m256i second = _mm256_cmpeq_epi16(_mm256_loadu_si256(at + 1), wanted);
    const __m256i bytes  = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xD8);
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
}

inline float to_float(ggml_fp16_t x) { return _cvtsh_ss(x); }

}  // namespace pyg::kernels
