// AVX-512: vectors of sixteen lanes (see vector_avx2.hpp), and thirty-two BF16 numbers in a register.
#pragma once

// gcc warns about the undefined operands of its own intrinsics.
#if defined(__GNUC__) && !defined(__clang__)
#    pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#    pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "kernels/simd/vector_avx2.hpp"

namespace pyg::kernels {

struct Ints16 {
    static constexpr int LANES = 16;

    __m512i v;

    static Ints16 set1(int32_t x) { return {_mm512_set1_epi32(x)}; }

    static Ints16 load(const int8_t * from) {
        return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)))};
    }
    static Ints16 load(const uint8_t * from) {
        return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)))};
    }
    static Ints16 load(const uint16_t * from) {
        return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)))};
    }
    static Ints16 load_bits(const void * from) { return {_mm512_loadu_si512(from)}; }

    void store(void * to) const { _mm512_storeu_si512(to, v); }
};

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

    void store(void * to) const { _mm512_storeu_ps(static_cast<float *>(to), v); }

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

inline Ints16 and_mask(Ints16 x, int mask) {
    return {_mm512_and_si512(x.v, _mm512_set1_epi8(static_cast<char>(mask)))};
}

template <int BY>
Ints16 shift_right(Ints16 x) {
    return {_mm512_srli_epi16(x.v, BY)};
}
inline Ints16 shift_right(Ints16 x, int by) { return {_mm512_srl_epi16(x.v, _mm_cvtsi32_si128(by))}; }
template <int BY>
Ints16 shift_left(Ints16 x) {
    return {_mm512_slli_epi16(x.v, BY)};
}

inline Ints16 bit_or(Ints16 x, Ints16 y) { return {_mm512_or_si512(x.v, y.v)}; }

template <int FIRST>
Ints16 spread_fifth_bits(Ints16 x) {
    const __m512i which = _mm512_set1_epi32(0x08040201 << FIRST % 8 / 4 * 4);
    const __m512i lane  = _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0);
    const __m512i own   = _mm512_shuffle_epi8(x.v, _mm512_add_epi8(lane, _mm512_set1_epi8(FIRST / 8)));
    return {_mm512_maskz_mov_epi8(_mm512_test_epi8_mask(own, which), _mm512_set1_epi8(16))};
}

inline Ints16 table_lookup(Ints16 places, const int8_t (&table)[16]) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), places.v)};
}

inline Ints16 add(Ints16 x, Ints16 y) { return {_mm512_add_epi32(x.v, y.v)}; }
inline Ints16 add_words(Ints16 x, Ints16 y) { return {_mm512_add_epi16(x.v, y.v)}; }
inline Ints16 multiply(Ints16 x, Ints16 y) { return {_mm512_mullo_epi32(x.v, y.v)}; }
inline Ints16 max_of(Ints16 x, Ints16 y) { return {_mm512_max_epi32(x.v, y.v)}; }
inline Ints16 madd_words(Ints16 x, Ints16 y) { return {_mm512_madd_epi16(x.v, y.v)}; }
inline Ints16 maddubs(Ints16 weights, Ints16 activations) { return {_mm512_maddubs_epi16(weights.v, activations.v)}; }
#ifdef __AVX512VNNI__
inline Ints16 dot4_add(Ints16 sums, Ints16 weights, Ints16 activations) {
    return {_mm512_dpbusd_epi32(sums.v, weights.v, activations.v)};
}
#endif
inline Ints16 add_zero_point(Ints16 x) { return {_mm512_xor_si512(x.v, _mm512_set1_epi8(-128))}; }

inline Ints16 pack_words(Ints16 x, Ints16 y) {
    return {_mm512_mask_blend_epi16(0xAAAAAAAA, x.v, _mm512_slli_epi32(y.v, 16))};
}

template <int HALF>
Ints16 widen_bytes(Ints16 x) {
    const __m512i high = HALF == 0 ? _mm512_set4_epi32(0x0D800C80, 0x09800880, 0x05800480, 0x01800080)
                                   : _mm512_set4_epi32(0x0F800E80, 0x0B800A80, 0x07800680, 0x03800280);
    return {_mm512_srai_epi16(_mm512_shuffle_epi8(x.v, high), 8)};
}

inline int32_t reduce_max(Ints16 x) { return _mm512_reduce_max_epi32(x.v); }

inline void store_words(int16_t * q, Ints16 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), _mm512_cvtsepi32_epi16(x.v));
}
inline void store_bytes(int8_t * q, Ints16 x) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(q), _mm512_cvtsepi32_epi8(x.v));
}

inline Floats16 to_floats(Ints16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline Floats16 as_floats(Ints16 bits) { return {_mm512_castsi512_ps(bits.v)}; }

inline Ints16   to_ints(Floats16 x) { return {_mm512_cvtps_epi32(x.v)}; }
inline Floats16 round_nearest(Floats16 x) {
    return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

inline Floats16 magnitude(Floats16 x) { return {_mm512_abs_ps(x.v)}; }
inline Ints16   magnitude_bits(Floats16 x) { return {_mm512_castps_si512(magnitude(x).v)}; }

inline Floats16 operator+(Floats16 x, Floats16 y) { return {_mm512_add_ps(x.v, y.v)}; }
inline Floats16 operator-(Floats16 x, Floats16 y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline Floats16 operator*(Floats16 x, Floats16 y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline Floats16 operator/(Floats16 x, Floats16 y) { return {_mm512_div_ps(x.v, y.v)}; }

inline Floats16 multiply_add(Floats16 x, Floats16 y, Floats16 z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }

inline Floats16 max_of(Floats16 x, Floats16 y) { return {_mm512_max_ps(x.v, y.v)}; }

inline Floats16 select_less(Floats16 x, Floats16 y, Floats16 a, Floats16 b) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), b.v, a.v)};
}

inline Floats16 copy_sign(Floats16 y, Floats16 x) {
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(y.v), _mm512_set1_epi32(INT32_MIN));
    return {_mm512_castsi512_ps(_mm512_or_si512(sign, _mm512_castps_si512(x.v)))};
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

// The sum of both halves of `a`, then of `b`.
inline Floats16 add_halves(Floats16 a, Floats16 b) {
    return {_mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x44), _mm512_shuffle_f32x4(a.v, b.v, 0xEE))};
}

// reduce_add() of the lower and the upper half of each vector, in this order.
inline Floats8 reduce_halves(Floats16 a, Floats16 b, Floats16 c, Floats16 d) {
    const __m512 ab =
        _mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x88), _mm512_shuffle_f32x4(a.v, b.v, 0xDD));  // four lanes each
    const __m512  cd       = _mm512_add_ps(_mm512_shuffle_f32x4(c.v, d.v, 0x88), _mm512_shuffle_f32x4(c.v, d.v, 0xDD));
    const __m512  two      = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
    const __m512  one      = _mm512_add_ps(two, _mm512_permute_ps(two, 0xB1));
    const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 4, 8, 12, 2, 6, 10, 14);
    return {_mm512_castps512_ps256(_mm512_permutexvar_ps(in_order, one))};
}

// Store the first `n` lanes.
inline void store_lanes(float * to, Floats8 x, int n) {
    _mm256_mask_storeu_ps(to, static_cast<__mmask8>((1 << n) - 1), x.v);
}

inline Floats8 swap_halves(Floats8 x) { return {_mm256_permute2f128_ps(x.v, x.v, 0x01)}; }

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

// Operations for planes of weights (weight_planes.hpp).

inline Ints16 add_bytes(Ints16 x, int y) { return {_mm512_add_epi8(x.v, _mm512_set1_epi8(static_cast<char>(y)))}; }
inline Ints16 sub_words(Ints16 x, Ints16 y) { return {_mm512_sub_epi16(x.v, y.v)}; }
inline Ints16 mullo_words(Ints16 x, Ints16 y) { return {_mm512_mullo_epi16(x.v, y.v)}; }

// The low byte of each word.
inline Ints16 low_bytes(Ints16 x) { return {_mm512_and_si512(x.v, _mm512_set1_epi32(0x00FF00FF))}; }

// Low bytes of `x` and high bytes of `y`.
inline Ints16 blend_bytes(Ints16 x, Ints16 y) {
    return {_mm512_ternarylogic_epi32(_mm512_set1_epi32(0x00FF00FF), x.v, y.v, 0xCA)};
}

template <int BY>
Ints16 shift_left_lanes(Ints16 x) {
    return {_mm512_slli_epi32(x.v, BY)};
}

inline bool are_finite(Floats16 x) { return reduce_max(magnitude_bits(x)) < 0x7F800000; }

// A processor with AVX-512 VNNI may have AMX, which is detected at run time. PYG_WITHOUT_AMX leaves its code out.
#if defined(PYG_MODELLED_AMX) || (defined(__AVX512VNNI__) && defined(__x86_64__) && defined(__linux__) &&              \
                                  !defined(PYG_MODELLED) && !defined(PYG_WITHOUT_AMX))
#    define PYG_AMX

constexpr int MIN_AMX_COLUMNS = 12;  // from which on AMX is faster
#endif

}  // namespace pyg::kernels
