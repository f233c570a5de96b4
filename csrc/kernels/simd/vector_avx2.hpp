// AVX2 vectors with a 32-bit lane for each of a group's 16 rows: two registers each.
//
// Every instruction set has a header with the same functions (vector.hpp includes one), and those of dot4_bytes.hpp, if
// it has such instructions, or of dot2_bytes.hpp.
#pragma once

#include "kernels/simd/vector_x86.hpp"

namespace pyg::kernels {

// Copied register by register: gcc copies structs 16 bytes at a time, which stalls the next 32-byte load.
struct Ints {
    __m256i a, b;

    Ints() = default;
    Ints(__m256i first, __m256i second) : a(first), b(second) {}
    Ints(const Ints & other) : a(other.a), b(other.b) {}
    Ints & operator=(const Ints & other) {
        a = other.a;
        b = other.b;
        return *this;
    }
};

struct Floats {
    __m256 a, b;

    Floats() = default;
    Floats(__m256 first, __m256 second) : a(first), b(second) {}
    Floats(const Floats & other) : a(other.a), b(other.b) {}
    Floats & operator=(const Floats & other) {
        a = other.a;
        b = other.b;
        return *this;
    }
};

// MICRO_KERNEL_COLUMNS and GEMV_COLUMNS: columns whose sums fit into registers. GEMM_MIN_COLUMNS: number of columns
// from which on tiles are faster. ACCUMULATORS: vectors of sums that leave registers for unpacking.
constexpr int MICRO_KERNEL_COLUMNS = 4;
constexpr int GEMV_COLUMNS         = 4;
constexpr int GEMM_MIN_COLUMNS     = 8;
constexpr int ACCUMULATORS         = 4;

inline Ints zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

inline Ints set1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

// The same four bytes in every lane.
inline Ints broadcast(const void * p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return set1(bytes);
}

inline Ints load(const void * p) {
    const auto at = static_cast<const __m256i *>(p);
    return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}

inline void store(void * p, const Ints & x) {
    const auto at = static_cast<__m256i *>(p);
    _mm256_storeu_si256(at, x.a);
    _mm256_storeu_si256(at + 1, x.b);
}

// 16 signed or unsigned bytes as 16 lanes.
inline Ints load_signed_bytes(const void * p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i *>(p));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline Ints load_bytes(const void * p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i *>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

// 16 unsigned 16-bit numbers.
inline Ints load_words(const void * p) {
    const auto at = static_cast<const __m128i *>(p);
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), _mm256_cvtepu16_epi32(_mm_loadu_si128(at + 1))};
}

// Each byte AND `mask`.
inline Ints and_mask(const Ints & x, int mask) {
    const __m256i bits = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(x.a, bits), _mm256_and_si256(x.b, bits)};
}

// Shift the bits of each byte; bits that cross into another byte have to be masked.
template <int BY>
Ints shift_right(const Ints & x) {
    return {_mm256_srli_epi16(x.a, BY), _mm256_srli_epi16(x.b, BY)};
}
inline Ints shift_right(const Ints & x, int by) {
    const __m128i places = _mm_cvtsi32_si128(by);
    return {_mm256_srl_epi16(x.a, places), _mm256_srl_epi16(x.b, places)};
}
template <int BY>
Ints shift_left(const Ints & x) {
    return {_mm256_slli_epi16(x.a, BY), _mm256_slli_epi16(x.b, BY)};
}

inline Ints bit_or(const Ints & x, const Ints & y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }

// Bits FIRST to FIRST + 3 of each lane become bit 4 of its four bytes.
template <int FIRST>
Ints spread_fifth_bits(const Ints & x) {
    const __m256i which = _mm256_set1_epi32(0x08040201 << FIRST % 8 / 4 * 4);
    const __m256i byte = _mm256_add_epi8(_mm256_set_epi8(12, 12, 12, 12, 8, 8, 8, 8, 4, 4, 4, 4, 0, 0, 0, 0, 12, 12, 12,
                                                         12, 8, 8, 8, 8, 4, 4, 4, 4, 0, 0, 0, 0),
                                         _mm256_set1_epi8(FIRST / 8));
    const __m256i sixteen = _mm256_set1_epi8(16);
    const auto    spread  = [&](__m256i bits) {
        const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(bits, byte), which);
        return _mm256_and_si256(_mm256_cmpeq_epi8(own, which), sixteen);
    };
    return {spread(x.a), spread(x.b)};
}

// Table lookup: each byte, less than 16, is an index.
inline Ints table_lookup(const Ints & places, const int8_t (&table)[16]) {
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(table)));
    return {_mm256_shuffle_epi8(values, places.a), _mm256_shuffle_epi8(values, places.b)};
}

// 32-bit lanes.
inline Ints add(const Ints & x, const Ints & y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }

inline Ints multiply(const Ints & x, const Ints & y) {
    return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}

// Dot product of the two 16-bit numbers of each lane.
inline Ints madd_words(const Ints & x, const Ints & y) {
    return {_mm256_madd_epi16(x.a, y.a), _mm256_madd_epi16(x.b, y.b)};
}

// The low 16 bits of x and, above them, those of y.
inline Ints pack_words(const Ints & x, const Ints & y) {
    return {_mm256_blend_epi16(x.a, _mm256_slli_epi32(y.a, 16), 0xAA),
            _mm256_blend_epi16(x.b, _mm256_slli_epi32(y.b, 16), 0xAA)};
}

inline Floats to_floats(const Ints & x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

inline Floats as_floats(const Ints & bits) { return {_mm256_castsi256_ps(bits.a), _mm256_castsi256_ps(bits.b)}; }

// Round to nearest, ties to even.
inline Ints round_nearest(const Floats & x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }

// The bits of |x|.
inline Ints magnitude_bits(const Floats & x) {
    const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
    return {_mm256_and_si256(_mm256_castps_si256(x.a), mask), _mm256_and_si256(_mm256_castps_si256(x.b), mask)};
}

inline Ints max_of(const Ints & x, const Ints & y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }

inline int32_t reduce_max(const Ints & x) {
    const __m256i eight = _mm256_max_epi32(x.a, x.b);
    __m128i       most  = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    most                = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
    most                = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1));
    return _mm_cvtsi128_si32(most);
}

inline Floats load_floats(const float * p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }

inline Floats load_half_floats(const void * p) {
    const auto at = static_cast<const __m128i *>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}

inline void store(float * p, const Floats & x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

inline Floats multiply(const Floats & x, const Floats & y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}

inline Floats set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

// x * y + z
inline Floats multiply_add(const Floats & x, const Floats & y, const Floats & z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

// Force x into a register here: compilers would otherwise compute all products of a sub-block before adding them, with
// too few registers, or reload weights for each column.
inline void keep_in_register([[maybe_unused]] Ints & x) {
#if defined(__GNUC__)
    asm("" : "+x"(x.a), "+x"(x.b));
#endif
}

// Store 16 numbers as 8 or 16 bits each.
inline void store_bytes(int8_t * q, const Ints & x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(q), bytes);
}

#ifdef __AVXVNNI__
#    define PYG_DOT4

// The instruction takes unsigned weights, so signed ones get a zero point of 128.
constexpr int ZERO_POINT_OF_BYTES = 128;

inline Ints add_zero_point(const Ints & x) {
    const __m256i sign = _mm256_set1_epi8(-128);
    return {_mm256_xor_si256(x.a, sign), _mm256_xor_si256(x.b, sign)};
}

// Add the dot product of four unsigned weights and four activations to each lane.
inline Ints dot4_add(const Ints & sums, const Ints & weights, const Ints & activations) {
    return {_mm256_dpbusd_avx_epi32(sums.a, weights.a, activations.a),
            _mm256_dpbusd_avx_epi32(sums.b, weights.b, activations.b)};
}
#else
inline void store_words(int16_t * q, const Ints & x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), words);
}

// 16-bit lanes.
inline Ints add_words(const Ints & x, const Ints & y) {
    return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}

// Unsigned weights times activations, pairs added to 16 bits.
inline Ints maddubs(const Ints & weights, const Ints & activations) {
    return {_mm256_maddubs_epi16(weights.a, activations.a), _mm256_maddubs_epi16(weights.b, activations.b)};
}

// The first or last two signed bytes of each lane as 16-bit numbers.
template <int HALF>
Ints widen_bytes(const Ints & x) {
    const __m256i place = HALF == 0 ? _mm256_set1_epi64x(0x0580048001800080) : _mm256_set1_epi64x(0x0780068003800280);
    const __m256i lanes = _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
    const __m256i high  = _mm256_add_epi8(place, lanes);
    return {_mm256_srai_epi16(_mm256_shuffle_epi8(x.a, high), 8), _mm256_srai_epi16(_mm256_shuffle_epi8(x.b, high), 8)};
}
#endif

}  // namespace pyg::kernels
