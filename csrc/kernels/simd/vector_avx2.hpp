// Vectors with a lane of 32 bits for each of a group's 16 rows: two registers each.
//
// Every instruction set has a header like this one (vector.hpp chooses), with the same functions. For products of bytes
// it has what dot4_bytes.hpp needs, where there are instructions for that, or what dot2_bytes.hpp needs.
#pragma once

#include "kernels/simd/vector_x86.hpp"

namespace pyg::kernels {

// Copied register by register: gcc would copy a struct in pieces of 16 bytes, which cannot be read back as 32 at once
// without a long wait.
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

// Columns that meet a tile at once, or weights as they are unpacked: as many as registers hold the sums of. Tiles pay
// from MANY_COLUMNS on. SUMS_AT_ONCE: vectors of sums that leave registers for weights as they are unpacked.
constexpr int TILE_COLUMNS = 4;
constexpr int FEW_COLUMNS  = 4;
constexpr int MANY_COLUMNS = 8;
constexpr int SUMS_AT_ONCE = 4;

inline Ints zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

inline Ints everywhere(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

// The same four bytes in every lane.
inline Ints broadcast(const void * p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return everywhere(bytes);
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

// 16 bytes, with a sign or without, as 16 lanes.
inline Ints load_signed_bytes(const void * p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i *>(p));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline Ints load_bytes(const void * p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i *>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}

// 16 numbers of 16 bits without sign.
inline Ints load_words(const void * p) {
    const auto at = static_cast<const __m128i *>(p);
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(at)), _mm256_cvtepu16_epi32(_mm_loadu_si128(at + 1))};
}

// Of each byte, the bits of `mask`.
inline Ints masked(const Ints & x, int mask) {
    const __m256i bits = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(x.a, bits), _mm256_and_si256(x.b, bits)};
}

// Each byte's bits BY places further down or up; what crosses into another byte is for masked() to remove.
template <int BY>
Ints down(const Ints & x) {
    return {_mm256_srli_epi16(x.a, BY), _mm256_srli_epi16(x.b, BY)};
}
inline Ints down(const Ints & x, int by) {
    const __m128i places = _mm_cvtsi32_si128(by);
    return {_mm256_srl_epi16(x.a, places), _mm256_srl_epi16(x.b, places)};
}
template <int BY>
Ints up(const Ints & x) {
    return {_mm256_slli_epi16(x.a, BY), _mm256_slli_epi16(x.b, BY)};
}

inline Ints either(const Ints & x, const Ints & y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }

// In each row's lane, bits FIRST to FIRST + 3 of its number become bit 4 of its four bytes.
template <int FIRST>
Ints four_fifth_bits(const Ints & x) {
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

// Each byte, less than 16, as a place in a table of bytes.
inline Ints looked_up(const Ints & places, const int8_t (&table)[16]) {
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(table)));
    return {_mm256_shuffle_epi8(values, places.a), _mm256_shuffle_epi8(values, places.b)};
}

// Of numbers of 32 bits.
inline Ints add(const Ints & x, const Ints & y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }

inline Ints multiply(const Ints & x, const Ints & y) {
    return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)};
}

// Each lane's two numbers of 16 bits times its two, added.
inline Ints multiply_pairs(const Ints & x, const Ints & y) {
    return {_mm256_madd_epi16(x.a, y.a), _mm256_madd_epi16(x.b, y.b)};
}

// The low 16 bits of x, and those of y above them.
inline Ints pairs(const Ints & x, const Ints & y) {
    return {_mm256_blend_epi16(x.a, _mm256_slli_epi32(y.a, 16), 0xAA),
            _mm256_blend_epi16(x.b, _mm256_slli_epi32(y.b, 16), 0xAA)};
}

inline Floats to_floats(const Ints & x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

inline Floats as_floats(const Ints & bits) { return {_mm256_castsi256_ps(bits.a), _mm256_castsi256_ps(bits.b)}; }

// To the nearest, and to the even one of two.
inline Ints rounded(const Floats & x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }

// The bits of floats without their sign.
inline Ints magnitude_bits(const Floats & x) {
    const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
    return {_mm256_and_si256(_mm256_castps_si256(x.a), mask), _mm256_and_si256(_mm256_castps_si256(x.b), mask)};
}

inline Ints larger(const Ints & x, const Ints & y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }

inline int32_t largest(const Ints & x) {
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

inline Floats everywhere(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

// x * y + z
inline Floats multiply_add(const Floats & x, const Floats & y, const Floats & z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

// Makes compilers have the numbers in registers at this point: they would else make all products of a segment before
// they add them up, for which there are too few registers, or read weights again from memory for each column.
inline void keep([[maybe_unused]] Ints & x) {
#if defined(__GNUC__)
    asm("" : "+x"(x.a), "+x"(x.b));
#endif
}

// Of 16 numbers that fit, in 8 or 16 bits each.
inline void store_bytes(int8_t * q, const Ints & x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(q), bytes);
}

#ifdef __AVXVNNI__
#    define PYG_DOTS_OF_FOUR

// The weights have no sign, so those that have one get 128 too much.
constexpr int PLUS_OF_BYTES = 128;

inline Ints plus_of_bytes(const Ints & x) {
    const __m256i sign = _mm256_set1_epi8(-128);
    return {_mm256_xor_si256(x.a, sign), _mm256_xor_si256(x.b, sign)};
}

// Adds to each sum its lane's four weights, without sign, times its four activations.
inline Ints add_products_of_four(const Ints & sums, const Ints & weights, const Ints & activations) {
    return {_mm256_dpbusd_avx_epi32(sums.a, weights.a, activations.a),
            _mm256_dpbusd_avx_epi32(sums.b, weights.b, activations.b)};
}
#else
inline void store_words(int16_t * q, const Ints & x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), words);
}

// Of numbers of 16 bits.
inline Ints add_words(const Ints & x, const Ints & y) {
    return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}

// Weights without sign times activations, each two added, in 16 bits.
inline Ints products_of_two(const Ints & weights, const Ints & activations) {
    return {_mm256_maddubs_epi16(weights.a, activations.a), _mm256_maddubs_epi16(weights.b, activations.b)};
}

// Each lane's first two bytes, or its other two, with their signs as numbers of 16 bits.
template <int HALF>
Ints words_of_bytes(const Ints & x) {
    const __m256i place = HALF == 0 ? _mm256_set1_epi64x(0x0580048001800080) : _mm256_set1_epi64x(0x0780068003800280);
    const __m256i lanes = _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
    const __m256i high  = _mm256_add_epi8(place, lanes);
    return {_mm256_srai_epi16(_mm256_shuffle_epi8(x.a, high), 8), _mm256_srai_epi16(_mm256_shuffle_epi8(x.b, high), 8)};
}
#endif

}  // namespace pyg::kernels
