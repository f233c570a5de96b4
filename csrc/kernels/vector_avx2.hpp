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

inline Floats load_floats(const float * p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }

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
