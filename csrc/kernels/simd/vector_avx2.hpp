// AVX2: vectors of eight lanes. Every instruction set's header has the same operations (vector.hpp includes one).
#pragma once

#include "ggml.h"
#include "kernels/simd/vector_pair.hpp"

#include <immintrin.h>

#include <cstdint>

namespace pyg::kernels {

// Lanes of 32 bits. Some operations take each as two words of 16 bits, or as four bytes.
struct Ints8 {
    static constexpr int LANES = 8;

    __m256i v;

    static Ints8 set1(int32_t x) { return {_mm256_set1_epi32(x)}; }

    // A number for each lane.
    static Ints8 load(const int8_t * from) {
        return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(from)))};
    }
    static Ints8 load(const uint8_t * from) {
        return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(from)))};
    }
    static Ints8 load(const uint16_t * from) {
        return {_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)))};
    }

    // The bits of all lanes.
    static Ints8 load_bits(const void * from) { return {_mm256_loadu_si256(static_cast<const __m256i *>(from))}; }

    void store(void * to) const { _mm256_storeu_si256(static_cast<__m256i *>(to), v); }
};

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

    void store(void * to) const { _mm256_storeu_ps(static_cast<float *>(to), v); }
};

// Each byte AND `mask`.
inline Ints8 and_mask(Ints8 x, int mask) { return {_mm256_and_si256(x.v, _mm256_set1_epi8(static_cast<char>(mask)))}; }

// Shift the bits of each byte; bits that cross into another byte have to be masked.
template <int BY>
Ints8 shift_right(Ints8 x) {
    return {_mm256_srli_epi16(x.v, BY)};
}
inline Ints8 shift_right(Ints8 x, int by) { return {_mm256_srl_epi16(x.v, _mm_cvtsi32_si128(by))}; }
template <int BY>
Ints8 shift_left(Ints8 x) {
    return {_mm256_slli_epi16(x.v, BY)};
}

inline Ints8 bit_or(Ints8 x, Ints8 y) { return {_mm256_or_si256(x.v, y.v)}; }

// Bits FIRST to FIRST + 3 of each lane become bit 4 of its four bytes.
template <int FIRST>
Ints8 spread_fifth_bits(Ints8 x) {
    const __m256i which = _mm256_set1_epi32(0x08040201 << FIRST % 8 / 4 * 4);
    const __m256i lane =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
    const __m256i byte = _mm256_add_epi8(lane, _mm256_set1_epi8(FIRST / 8));
    const __m256i own  = _mm256_and_si256(_mm256_shuffle_epi8(x.v, byte), which);
    return {_mm256_and_si256(_mm256_cmpeq_epi8(own, which), _mm256_set1_epi8(16))};
}

// Table lookup: each byte, less than 16, is an index.
inline Ints8 table_lookup(Ints8 places, const int8_t (&table)[16]) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
    return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), places.v)};
}

inline Ints8 add(Ints8 x, Ints8 y) { return {_mm256_add_epi32(x.v, y.v)}; }
inline Ints8 add_words(Ints8 x, Ints8 y) { return {_mm256_add_epi16(x.v, y.v)}; }
inline Ints8 multiply(Ints8 x, Ints8 y) { return {_mm256_mullo_epi32(x.v, y.v)}; }
inline Ints8 max_of(Ints8 x, Ints8 y) { return {_mm256_max_epi32(x.v, y.v)}; }

// Dot product of the two words of each lane.
inline Ints8 madd_words(Ints8 x, Ints8 y) { return {_mm256_madd_epi16(x.v, y.v)}; }

// Unsigned weights times activations, pairs added to words.
inline Ints8 maddubs(Ints8 weights, Ints8 activations) { return {_mm256_maddubs_epi16(weights.v, activations.v)}; }

#ifdef __AVXVNNI__
// Add the dot product of four unsigned weights and four activations to each lane.
inline Ints8 dot4_add(Ints8 sums, Ints8 weights, Ints8 activations) {
    return {_mm256_dpbusd_avx_epi32(sums.v, weights.v, activations.v)};
}
#endif

// That instruction takes unsigned weights, so signed ones get a zero point.
constexpr int ZERO_POINT_OF_BYTES = 128;
inline Ints8  add_zero_point(Ints8 x) { return {_mm256_xor_si256(x.v, _mm256_set1_epi8(-128))}; }

// The low words of x and, above them, those of y.
inline Ints8 pack_words(Ints8 x, Ints8 y) { return {_mm256_blend_epi16(x.v, _mm256_slli_epi32(y.v, 16), 0xAA)}; }

// The first or last two signed bytes of each lane as words.
template <int HALF>
Ints8 widen_bytes(Ints8 x) {
    const __m256i place = HALF == 0 ? _mm256_set1_epi64x(0x0580048001800080) : _mm256_set1_epi64x(0x0780068003800280);
    const __m256i lanes = _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
    return {_mm256_srai_epi16(_mm256_shuffle_epi8(x.v, _mm256_add_epi8(place, lanes)), 8)};
}

inline int32_t reduce_max(Ints8 x) {
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
    most         = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
    most         = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1));
    return _mm_cvtsi128_si32(most);
}

// Store 16 numbers as 8 or 16 bits each.
inline void store_words(int16_t * q, const VectorPair<Ints8> & x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a.v, x.b.v), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), words);
}
inline void store_bytes(int8_t * q, const VectorPair<Ints8> & x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a.v, x.b.v), 0xD8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(q), bytes);
}

// Two 16-bit sums of 16 signed bytes: of the first two of each four, and of the other two.
inline uint32_t sums_of_pairs(const int8_t * q) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(q));
    __m128i       sums  = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
    sums                = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0x4E));
    sums                = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0xB1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(sums));
}

inline Floats8 to_floats(Ints8 x) { return {_mm256_cvtepi32_ps(x.v)}; }
inline Floats8 as_floats(Ints8 bits) { return {_mm256_castsi256_ps(bits.v)}; }

// Round to nearest, ties to even.
inline Ints8   to_ints(Floats8 x) { return {_mm256_cvtps_epi32(x.v)}; }
inline Floats8 round_nearest(Floats8 x) {
    return {_mm256_round_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

inline Floats8 magnitude(Floats8 x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v)}; }
inline Ints8   magnitude_bits(Floats8 x) { return {_mm256_castps_si256(magnitude(x).v)}; }

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

// |x| with the sign of y, for x >= 0
inline Floats8 copy_sign(Floats8 y, Floats8 x) {
    return {_mm256_or_ps(_mm256_and_ps(_mm256_set1_ps(-0.0f), y.v), x.v)};
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

// Force x into a register here: compilers would otherwise reload it for each use, or compute all products of a
// sub-block before adding them, with too few registers.
template <class Vector>
PYG_INLINE inline auto keep_in_register([[maybe_unused]] Vector & x) -> decltype(void(x.v)) {
#if defined(__GNUC__) && !defined(PYG_MODELLED)  // csrc/tests
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
