// AVX-512: sixteen floats, or thirty-two BF16 numbers, in a register.
#pragma once

// gcc warns about the undefined operands of its own intrinsics.
#if defined(__GNUC__) && !defined(__clang__)
#    pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#    pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "kernels/simd/floats8_avx2.hpp"

namespace pyg::kernels {

struct Floats16 {
    static constexpr int LANES = 16;

    __m512 v;

    static Floats16 set1(float x) { return {_mm512_set1_ps(x)}; }

    static Floats16 load(const float * from) { return {_mm512_loadu_ps(from)}; }
    static Floats16 load(const ggml_fp16_t * from) {
        return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)))};
    }
    static Floats16 load(const ggml_bf16_t * from) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
    }

    // Eight values, twice.
    static Floats16 twice(const float * from) {
        return {_mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_loadu_ps(from))))};
    }

    // Eight values each.
    static Floats16 load_halves(const float * lower, const float * upper) {
        return {joined(_mm256_loadu_ps(lower), _mm256_loadu_ps(upper))};
    }
    static Floats16 load_halves(const ggml_fp16_t * lower, const ggml_fp16_t * upper) {
        return {_mm512_cvtph_ps(words(lower, upper))};
    }
    static Floats16 load_halves(const ggml_bf16_t * lower, const ggml_bf16_t * upper) {
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words(lower, upper)), 16))};
    }

    void store(float * to) const { _mm512_storeu_ps(to, v); }

  private:
    static __m512 joined(__m256 lower, __m256 upper) {
        return _mm512_castpd_ps(
            _mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(lower)), _mm256_castps_pd(upper), 1));
    }

    static __m256i words(const void * lower, const void * upper) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i *>(lower))),
                                       _mm_loadu_si128(static_cast<const __m128i *>(upper)), 1);
    }
};

inline Floats16 operator+(Floats16 x, Floats16 y) { return {_mm512_add_ps(x.v, y.v)}; }
inline Floats16 operator-(Floats16 x, Floats16 y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline Floats16 operator*(Floats16 x, Floats16 y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline Floats16 operator/(Floats16 x, Floats16 y) { return {_mm512_div_ps(x.v, y.v)}; }

inline Floats16 multiply_add(Floats16 x, Floats16 y, Floats16 z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }

inline Floats16 max_of(Floats16 x, Floats16 y) { return {_mm512_max_ps(x.v, y.v)}; }

inline Floats16 select_less(Floats16 x, Floats16 y, Floats16 a, Floats16 b) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), b.v, a.v)};
}

inline Floats16 magnitude(Floats16 x) { return {_mm512_abs_ps(x.v)}; }

inline Floats16 copy_sign(Floats16 y, Floats16 x) {
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(y.v), _mm512_set1_epi32(INT32_MIN));
    return {_mm512_castsi512_ps(_mm512_or_si512(sign, _mm512_castps_si512(x.v)))};
}

inline Floats16 round_nearest(Floats16 x) {
    return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

inline Floats16 ldexp_of(Floats16 n, Floats16 x) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), exponent))};
}

inline Floats16 keep_lanes(Floats16 x, int low, int high) {
    const uint32_t below = high >= 16 ? 0xFFFF : high <= 0 ? 0 : (1u << high) - 1;
    const uint32_t out   = low >= 16 ? 0xFFFF : low <= 0 ? 0 : (1u << low) - 1;
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(below & ~out), _mm512_set1_ps(-__builtin_inff()), x.v)};
}

inline Floats8 lower_half(Floats16 x) { return {_mm512_castps512_ps256(x.v)}; }
inline Floats8 upper_half(Floats16 x) { return {_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x.v), 1))}; }

inline void keep_in_register([[maybe_unused]] Floats16 & x) {
#if defined(__GNUC__) && !defined(PYG_MODELLED)  // csrc/tests
    asm("" : "+v"(x.v));
#endif
}

#if defined(__AVX512BF16__) || defined(PYG_MODELLED_BF16)
#    define PYG_BF16_PAIRS

// Thirty-two values of BF16, in pairs.
struct Bf16Pairs {
    static constexpr int N = 32;

    __m512i v;

    static Bf16Pairs load(const ggml_bf16_t * from) { return {_mm512_loadu_si512(from)}; }
};

// Add the products of a pair to each lane.
inline Floats16 multiply_add(Bf16Pairs x, Bf16Pairs y, Floats16 z) {
    return {_mm512_dpbf16_ps(z.v, (__m512bh) x.v, (__m512bh) y.v)};
}

inline void keep_in_register([[maybe_unused]] Bf16Pairs & x) {
#    if defined(__GNUC__) && !defined(PYG_MODELLED)  // csrc/tests
    asm("" : "+v"(x.v));
#    endif
}
#endif

// Transpose eight by eight floats.
inline void transpose(Floats8 (&rows)[8]) {
    __m256 two[8], four[8];
    for (int i = 0; i < 8; i += 2) {
        two[i]     = _mm256_unpacklo_ps(rows[i].v, rows[i + 1].v);
        two[i + 1] = _mm256_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {
        four[i]     = _mm256_shuffle_ps(two[i], two[i + 2], 0x44);
        four[i + 1] = _mm256_shuffle_ps(two[i], two[i + 2], 0xEE);
        four[i + 2] = _mm256_shuffle_ps(two[i + 1], two[i + 3], 0x44);
        four[i + 3] = _mm256_shuffle_ps(two[i + 1], two[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; ++i) {
        rows[i].v     = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
        rows[i + 4].v = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
    }
}

// As if one half came after the other.
inline Floats8 add_to(Floats8 sums, Floats16 x) { return sums + lower_half(x) + upper_half(x); }

inline float reduce_max(Floats16 x) { return reduce_max(max_of(lower_half(x), upper_half(x))); }

}  // namespace pyg::kernels
