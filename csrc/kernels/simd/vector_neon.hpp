// NEON vectors with dot products (see vector_avx2.hpp): four registers each.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace pyg::kernels {

struct Ints {
    int32x4_t a, b, c, d;
};

struct Floats {
    float32x4_t a, b, c, d;
};

constexpr int MICRO_KERNEL_COLUMNS = 4;
constexpr int GEMV_COLUMNS         = 4;
constexpr int GEMM_MIN_COLUMNS     = 8;
constexpr int ACCUMULATORS         = 4;

// `function` of each register.
template <class Function>
PYG_INLINE inline Ints each(const Ints & x, const Function & function) {
    return {function(x.a), function(x.b), function(x.c), function(x.d)};
}
template <class Function>
PYG_INLINE inline Ints each(const Ints & x, const Ints & y, const Function & function) {
    return {function(x.a, y.a), function(x.b, y.b), function(x.c, y.c), function(x.d, y.d)};
}

// The same of their bytes, without sign.
template <class Function>
PYG_INLINE inline Ints each_byte(const Ints & x, const Function & function) {
    return each(x, [&](int32x4_t v) { return vreinterpretq_s32_u8(function(vreinterpretq_u8_s32(v))); });
}

// The same of their numbers of 16 bits, without sign.
template <class Function>
PYG_INLINE inline Ints each_word(const Ints & x, const Function & function) {
    return each(x, [&](int32x4_t v) { return vreinterpretq_s32_u16(function(vreinterpretq_u16_s32(v))); });
}

inline Ints set1(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x)}; }

inline Ints zero() { return set1(int32_t(0)); }

inline Ints broadcast(const void * p) {
    int32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return set1(bytes);
}

inline Ints load(const void * p) {
    const auto at = static_cast<const uint8_t *>(p);
    return {vreinterpretq_s32_u8(vld1q_u8(at)), vreinterpretq_s32_u8(vld1q_u8(at + 16)),
            vreinterpretq_s32_u8(vld1q_u8(at + 32)), vreinterpretq_s32_u8(vld1q_u8(at + 48))};
}

inline void store(void * p, const Ints & x) {
    const auto at = static_cast<uint8_t *>(p);
    vst1q_u8(at, vreinterpretq_u8_s32(x.a));
    vst1q_u8(at + 16, vreinterpretq_u8_s32(x.b));
    vst1q_u8(at + 32, vreinterpretq_u8_s32(x.c));
    vst1q_u8(at + 48, vreinterpretq_u8_s32(x.d));
}

inline Ints load_signed_bytes(const void * p) {
    const int8x16_t bytes = vld1q_s8(static_cast<const int8_t *>(p));
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    return {vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
            vmovl_s16(vget_high_s16(high))};
}

inline Ints wider(uint16x8_t low, uint16x8_t high) {
    return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
            vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
}

inline Ints load_bytes(const void * p) {
    const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t *>(p));
    return wider(vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
}

inline Ints load_words(const void * p) {
    const uint8x16_t low  = vld1q_u8(static_cast<const uint8_t *>(p));
    const uint8x16_t high = vld1q_u8(static_cast<const uint8_t *>(p) + 16);
    return wider(vreinterpretq_u16_u8(low), vreinterpretq_u16_u8(high));
}

inline Ints and_mask(const Ints & x, int mask) {
    const uint8x16_t bits = vdupq_n_u8(static_cast<uint8_t>(mask));
    return each_byte(x, [&](uint8x16_t v) { return vandq_u8(v, bits); });
}

template <int BY>
Ints shift_right(const Ints & x) {
    return each_word(x, [](uint16x8_t v) { return vshlq_u16(v, vdupq_n_s16(-BY)); });
}
inline Ints shift_right(const Ints & x, int by) {
    return each_word(x, [by](uint16x8_t v) { return vshlq_u16(v, vdupq_n_s16(static_cast<int16_t>(-by))); });
}
template <int BY>
Ints shift_left(const Ints & x) {
    return each_word(x, [](uint16x8_t v) { return vshlq_u16(v, vdupq_n_s16(BY)); });
}

inline Ints bit_or(const Ints & x, const Ints & y) {
    return each(x, y, [](int32x4_t v, int32x4_t w) { return vorrq_s32(v, w); });
}

template <int FIRST>
Ints spread_fifth_bits(const Ints & x) {
    const uint8x16_t which   = vreinterpretq_u8_u32(vdupq_n_u32(0x08040201u << FIRST % 8 / 4 * 4));
    const uint32_t   rows[4] = {0, 0x04040404, 0x08080808, 0x0C0C0C0C};
    const uint8x16_t byte    = vaddq_u8(vreinterpretq_u8_u32(vld1q_u32(rows)), vdupq_n_u8(FIRST / 8));
    return each_byte(x, [&](uint8x16_t v) { return vandq_u8(vtstq_u8(vqtbl1q_u8(v, byte), which), vdupq_n_u8(16)); });
}

inline Ints table_lookup(const Ints & places, const int8_t (&table)[16]) {
    const uint8x16_t values = vreinterpretq_u8_s8(vld1q_s8(table));
    return each_byte(places, [&](uint8x16_t v) { return vqtbl1q_u8(values, v); });
}

inline Ints add(const Ints & x, const Ints & y) {
    return each(x, y, [](int32x4_t v, int32x4_t w) { return vaddq_s32(v, w); });
}

inline Ints multiply(const Ints & x, const Ints & y) {
    return each(x, y, [](int32x4_t v, int32x4_t w) { return vmulq_s32(v, w); });
}

inline Ints madd_words(const Ints & x, const Ints & y) {
    return each(x, y, [](int32x4_t v, int32x4_t w) {
        const int16x8_t p = vreinterpretq_s16_s32(v), q = vreinterpretq_s16_s32(w);
        return vpaddq_s32(vmull_s16(vget_low_s16(p), vget_low_s16(q)), vmull_high_s16(p, q));
    });
}

inline Ints pack_words(const Ints & x, const Ints & y) {
    return each(x, y, [](int32x4_t v, int32x4_t w) { return vsliq_n_s32(v, w, 16); });
}

inline Floats to_floats(const Ints & x) {
    return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
}

inline Floats as_floats(const Ints & bits) {
    return {vreinterpretq_f32_s32(bits.a), vreinterpretq_f32_s32(bits.b), vreinterpretq_f32_s32(bits.c),
            vreinterpretq_f32_s32(bits.d)};
}

inline Ints round_nearest(const Floats & x) {
    return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b), vcvtnq_s32_f32(x.c), vcvtnq_s32_f32(x.d)};
}

inline Ints magnitude_bits(const Floats & x) {
    const Ints bits = {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b), vreinterpretq_s32_f32(x.c),
                       vreinterpretq_s32_f32(x.d)};
    return each(bits, [](int32x4_t v) { return vandq_s32(v, vdupq_n_s32(0x7FFFFFFF)); });
}

inline Ints max_of(const Ints & x, const Ints & y) {
    return each(x, y, [](int32x4_t v, int32x4_t w) { return vmaxq_s32(v, w); });
}

inline int32_t reduce_max(const Ints & x) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.a, x.b), vmaxq_s32(x.c, x.d))); }

inline uint32_t sums_of_pairs(const int8_t * q) {
    const int16x8_t pairs = vpaddlq_s8(vld1q_s8(q));  // first, other, first, other, ...
    const int16x4_t sums  = vadd_s16(vget_low_s16(pairs), vget_high_s16(pairs));
    return vget_lane_u32(vreinterpret_u32_s16(vadd_s16(sums, vext_s16(sums, sums, 2))), 0);
}

inline Floats load_floats(const float * p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

inline Floats load_half_floats(const void * p) {
    const auto        at   = static_cast<const uint8_t *>(p);
    const float16x8_t low  = vreinterpretq_f16_u8(vld1q_u8(at));
    const float16x8_t high = vreinterpretq_f16_u8(vld1q_u8(at + 16));
    return {vcvt_f32_f16(vget_low_f16(low)), vcvt_f32_f16(vget_high_f16(low)), vcvt_f32_f16(vget_low_f16(high)),
            vcvt_f32_f16(vget_high_f16(high))};
}

inline void store(float * p, const Floats & x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}

inline Floats set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}; }

inline Floats multiply(const Floats & x, const Floats & y) {
    return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}

inline Floats multiply_add(const Floats & x, const Floats & y, const Floats & z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}

inline void keep_in_register([[maybe_unused]] Ints & x) {
#if defined(__GNUC__)
    asm("" : "+w"(x.a), "+w"(x.b), "+w"(x.c), "+w"(x.d));
#endif
}

inline void store_bytes(int8_t * q, const Ints & x) {
    const int16x8_t low  = vcombine_s16(vqmovn_s32(x.a), vqmovn_s32(x.b));
    const int16x8_t high = vcombine_s16(vqmovn_s32(x.c), vqmovn_s32(x.d));
    vst1q_s8(q, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}

#define PYG_DOT4

// The weights may have a sign, so nothing has to be added.
constexpr int ZERO_POINT_OF_BYTES = 0;

inline Ints add_zero_point(const Ints & x) { return x; }

inline Ints dot4_add(const Ints & sums, const Ints & weights, const Ints & activations) {
    const auto dot = [](int32x4_t sum, int32x4_t v, int32x4_t w) {
        return vdotq_s32(sum, vreinterpretq_s8_s32(v), vreinterpretq_s8_s32(w));
    };
    return {dot(sums.a, weights.a, activations.a), dot(sums.b, weights.b, activations.b),
            dot(sums.c, weights.c, activations.c), dot(sums.d, weights.d, activations.d)};
}

#ifdef __ARM_FEATURE_MATMUL_INT8
#    define PYG_DOT8

// The first four bytes of two registers' rows side by side, eight to a row, and the same of two others.
inline Ints side_by_side(int32x4_t a, int32x4_t a_next, int32x4_t b, int32x4_t b_next) {
    return {vzip1q_s32(a, a_next), vzip2q_s32(a, a_next), vzip1q_s32(b, b_next), vzip2q_s32(b, b_next)};
}

// Sums of two columns: of each pair of rows those of the first row, and then those of the second.
struct PairSums {
    Ints low, high;  // the first eight rows, and the others
};

inline PairSums no_pair_sums() { return {zero(), zero()}; }

// Adds eight values of each row, as side_by_side() puts them, times those of two columns.
inline void add_products_of_eight(PairSums & sums, const Ints & low, const Ints & high, const int8_t * first,
                                  const int8_t * second) {
    const int8x16_t columns  = vcombine_s8(vld1_s8(first), vld1_s8(second));
    const auto      multiply = [&](int32x4_t sum, int32x4_t rows) {
        return vmmlaq_s32(sum, vreinterpretq_s8_s32(rows), columns);
    };
    sums.low  = each(sums.low, low, multiply);
    sums.high = each(sums.high, high, multiply);
}

inline Ints first_column(const PairSums & sums) {
    return {vuzp1q_s32(sums.low.a, sums.low.b), vuzp1q_s32(sums.low.c, sums.low.d),
            vuzp1q_s32(sums.high.a, sums.high.b), vuzp1q_s32(sums.high.c, sums.high.d)};
}
inline Ints second_column(const PairSums & sums) {
    return {vuzp2q_s32(sums.low.a, sums.low.b), vuzp2q_s32(sums.low.c, sums.low.d),
            vuzp2q_s32(sums.high.a, sums.high.b), vuzp2q_s32(sums.high.c, sums.high.d)};
}
#endif

}  // namespace pyg::kernels
