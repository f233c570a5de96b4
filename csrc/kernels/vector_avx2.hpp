// Vectors with a lane, or several, for each of a group's 16 rows: two registers each.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace pyg::kernels {

struct Ints {  // 16 x int32, or 32 x int16
    __m256i a, b;
};

struct Floats {
    __m256 a, b;
};

inline Ints zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

inline Ints load(const void * p) {
    const auto at = static_cast<const __m256i *>(p);
    return {_mm256_load_si256(at), _mm256_load_si256(at + 1)};
}

inline Ints load_unaligned(const void * p) {
    const auto at = static_cast<const __m256i *>(p);
    return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}

inline void store(void * p, const Ints & x) {
    const auto at = static_cast<__m256i *>(p);
    _mm256_store_si256(at, x.a);
    _mm256_store_si256(at + 1, x.b);
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
template <int BY>
Ints up(const Ints & x) {
    return {_mm256_slli_epi16(x.a, BY), _mm256_slli_epi16(x.b, BY)};
}

inline Ints either(const Ints & x, const Ints & y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }

// 16 in each byte that has the bit set.
inline Ints sixteen_where(const Ints & x, int bit) {
    const __m256i mask    = _mm256_set1_epi8(static_cast<char>(1 << bit));
    const __m256i sixteen = _mm256_set1_epi8(16);
    return {_mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(x.a, mask), mask), sixteen),
            _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(x.b, mask), mask), sixteen)};
}

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

inline Ints add_128(const Ints & x) {
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(128));
    return {_mm256_xor_si256(x.a, sign), _mm256_xor_si256(x.b, sign)};
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

// The same four bytes in every lane.
inline __m256i broadcast(const void * p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return _mm256_set1_epi32(bytes);
}

inline Ints add(const Ints & x, const Ints & y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline Ints subtract(const Ints & x, const Ints & y) {
    return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}

// Adds to each row's two sums of 16 bits the products of its four bytes without sign with four that have one.
inline void add_products(Ints & sums, const Ints & bytes, __m256i with) {
    sums.a = _mm256_add_epi16(sums.a, _mm256_maddubs_epi16(bytes.a, with));
    sums.b = _mm256_add_epi16(sums.b, _mm256_maddubs_epi16(bytes.b, with));
    // Keeps the order of the sums. Compilers would make all products first, for which there are too few registers.
    asm("" : "+x"(sums.a), "+x"(sums.b));
}

// Each row's two numbers of 16 bits times its two, added.
inline Ints products(const Ints & x, const Ints & y) {
    return {_mm256_madd_epi16(x.a, y.a), _mm256_madd_epi16(x.b, y.b)};
}
inline Ints products(const Ints & x, __m256i y) { return {_mm256_madd_epi16(x.a, y), _mm256_madd_epi16(x.b, y)}; }

inline Floats to_floats(const Ints & x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

inline Floats multiply(const Floats & x, const Floats & y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}

// x * y - z
inline Floats multiply_subtract(const Floats & x, const Floats & y, const Floats & z) {
    return {_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b)};
}

// x * y + z
inline Floats multiply_add(const Floats & x, float y, const Floats & z) {
    const __m256 factor = _mm256_set1_ps(y);
    return {_mm256_fmadd_ps(x.a, factor, z.a), _mm256_fmadd_ps(x.b, factor, z.b)};
}

}  // namespace pyg::kernels
