// AVX-512 vectors (see vector_avx2.hpp): one register each.
#pragma once

#include "kernels/simd/vector_x86.hpp"

namespace pyg::kernels {

using Ints   = __m512i;
using Floats = __m512;

constexpr int MICRO_KERNEL_COLUMNS = 8;
constexpr int GEMV_COLUMNS         = 8;
constexpr int GEMM_MIN_COLUMNS     = 24;
constexpr int ACCUMULATORS         = 16;

inline Ints zero() { return _mm512_setzero_si512(); }

inline Ints set1(int32_t x) { return _mm512_set1_epi32(x); }

inline Ints broadcast(const void * p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return set1(bytes);
}

inline Ints load(const void * p) { return _mm512_loadu_si512(p); }

inline void store(void * p, Ints x) { _mm512_storeu_si512(p, x); }

inline Ints load_signed_bytes(const void * p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(p)));
}
inline Ints load_bytes(const void * p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(p)));
}

inline Ints load_words(const void * p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i *>(p)));
}

inline Ints and_mask(Ints x, int mask) { return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(mask))); }

template <int BY>
Ints shift_right(Ints x) {
    return _mm512_srli_epi16(x, BY);
}
inline Ints shift_right(Ints x, int by) { return _mm512_srl_epi16(x, _mm_cvtsi32_si128(by)); }
template <int BY>
Ints shift_left(Ints x) {
    return _mm512_slli_epi16(x, BY);
}

inline Ints bit_or(Ints x, Ints y) { return _mm512_or_si512(x, y); }

template <int FIRST>
Ints spread_fifth_bits(Ints x) {
    const Ints which = _mm512_set1_epi32(0x08040201 << FIRST % 8 / 4 * 4);
    const Ints byte =
        _mm512_add_epi8(_mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0), _mm512_set1_epi8(FIRST / 8));
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(_mm512_shuffle_epi8(x, byte), which), _mm512_set1_epi8(16));
}

inline Ints table_lookup(Ints places, const int8_t (&table)[16]) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), places);
}

inline Ints add(Ints x, Ints y) { return _mm512_add_epi32(x, y); }

inline Ints multiply(Ints x, Ints y) { return _mm512_mullo_epi32(x, y); }

inline Ints madd_words(Ints x, Ints y) { return _mm512_madd_epi16(x, y); }

inline Ints pack_words(Ints x, Ints y) { return _mm512_mask_blend_epi16(0xAAAAAAAA, x, _mm512_slli_epi32(y, 16)); }

inline Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }

inline Floats as_floats(Ints bits) { return _mm512_castsi512_ps(bits); }

inline Ints round_nearest(Floats x) { return _mm512_cvtps_epi32(x); }

inline Ints magnitude_bits(Floats x) { return _mm512_and_si512(_mm512_castps_si512(x), set1(0x7FFFFFFF)); }

inline Ints max_of(Ints x, Ints y) { return _mm512_max_epi32(x, y); }

inline int32_t reduce_max(Ints x) { return _mm512_reduce_max_epi32(x); }

inline Floats load_floats(const float * p) { return _mm512_loadu_ps(p); }

inline Floats load_half_floats(const void * p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i *>(p)));
}

inline void store(float * p, Floats x) { _mm512_storeu_ps(p, x); }

inline Floats multiply(Floats x, Floats y) { return _mm512_mul_ps(x, y); }

inline Floats set1(float x) { return _mm512_set1_ps(x); }

inline Floats multiply_add(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(x, y, z); }

inline void keep_in_register([[maybe_unused]] Ints & x) {
#if defined(__GNUC__) && !defined(PYG_MODELLED)  // csrc/tests
    asm("" : "+v"(x));
#endif
}

inline void store_bytes(int8_t * q, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(q), _mm512_cvtsepi32_epi8(x));
}

inline Ints maddubs(Ints weights, Ints activations) { return _mm512_maddubs_epi16(weights, activations); }

// Operations for planes of weights (weight_planes.hpp).

inline Ints add_bytes(Ints x, int y) { return _mm512_add_epi8(x, _mm512_set1_epi8(static_cast<char>(y))); }

inline Ints sub_words(Ints x, Ints y) { return _mm512_sub_epi16(x, y); }

inline Ints mullo_words(Ints x, Ints y) { return _mm512_mullo_epi16(x, y); }

// The low byte of each word.
inline Ints low_bytes(Ints x) { return _mm512_and_si512(x, set1(0x00FF00FF)); }

// Low bytes of `x` and high bytes of `y`.
inline Ints blend_bytes(Ints x, Ints y) { return _mm512_ternarylogic_epi32(set1(0x00FF00FF), x, y, 0xCA); }

inline bool are_finite(Floats x) { return reduce_max(magnitude_bits(x)) < 0x7F800000; }

template <int BY>
Ints shift_left_lanes(Ints x) {
    return _mm512_slli_epi32(x, BY);
}

// A processor with AVX-512 VNNI may have AMX, which is detected at run time. PYG_WITHOUT_AMX leaves its code out.
#if defined(PYG_MODELLED_AMX) || (defined(__AVX512VNNI__) && defined(__x86_64__) && defined(__linux__) &&              \
                                  !defined(PYG_MODELLED) && !defined(PYG_WITHOUT_AMX))
#    define PYG_AMX

constexpr int MIN_AMX_COLUMNS = 12;  // from which on AMX is faster
#endif

#ifdef __AVX512VNNI__
#    define PYG_DOT4

// The instruction takes unsigned weights, so signed ones get a zero point of 128.
constexpr int ZERO_POINT_OF_BYTES = 128;

inline Ints add_zero_point(Ints x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }

inline Ints dot4_add(Ints sums, Ints weights, Ints activations) {
    return _mm512_dpbusd_epi32(sums, weights, activations);
}
#else
inline void store_words(int16_t * q, Ints x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), _mm512_cvtsepi32_epi16(x));
}

inline Ints add_words(Ints x, Ints y) { return _mm512_add_epi16(x, y); }

template <int HALF>
Ints widen_bytes(Ints x) {
    const Ints high = HALF == 0 ? _mm512_set4_epi32(0x0D800C80, 0x09800880, 0x05800480, 0x01800080)
                                : _mm512_set4_epi32(0x0F800E80, 0x0B800A80, 0x07800680, 0x03800280);
    return _mm512_srai_epi16(_mm512_shuffle_epi8(x, high), 8);
}
#endif

}  // namespace pyg::kernels
