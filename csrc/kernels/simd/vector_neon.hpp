// NEON: vectors of four lanes (see vector_avx2.hpp), used in pairs and in pairs of pairs.
#pragma once

#include "ggml.h"
#include "kernels/simd/vector_pair.hpp"

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace pyg::kernels {

struct Ints4 {
    static constexpr int LANES = 4;

    int32x4_t v;

    Ints4() = default;
    Ints4(int32x4_t lanes) : v(lanes) {}
    Ints4(uint32x4_t lanes) : v(vreinterpretq_s32_u32(lanes)) {}
    Ints4(uint16x8_t words) : v(vreinterpretq_s32_u16(words)) {}
    Ints4(uint8x16_t bytes) : v(vreinterpretq_s32_u8(bytes)) {}

    uint16x8_t words() const { return vreinterpretq_u16_s32(v); }
    uint8x16_t bytes() const { return vreinterpretq_u8_s32(v); }
    int16x8_t  signed_words() const { return vreinterpretq_s16_s32(v); }
    int8x16_t  signed_bytes() const { return vreinterpretq_s8_s32(v); }

    static Ints4 set1(int32_t x) { return vdupq_n_s32(x); }
    static Ints4 load_bits(const void * from) { return vld1q_u8(static_cast<const uint8_t *>(from)); }
    void         store(void * to) const { vst1q_u8(static_cast<uint8_t *>(to), bytes()); }
};

using Ints8  = VectorPair<Ints4>;
using Ints16 = VectorPair<Ints8>;

// Four vectors at a time, so that a register of bytes is loaded once.
inline Ints16 wider(int16x8_t low, int16x8_t high) {
    return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low)}, {vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
}
inline Ints16 wider(uint16x8_t low, uint16x8_t high) {
    return {{vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low)}, {vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)}};
}
template <>
template <>
inline Ints16 Ints16::load(const int8_t * from) {
    const int8x16_t bytes = vld1q_s8(from);
    return wider(vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
}
template <>
template <>
inline Ints16 Ints16::load(const uint8_t * from) {
    const uint8x16_t bytes = vld1q_u8(from);
    return wider(vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
}
template <>
template <>
inline Ints16 Ints16::load(const uint16_t * from) {
    return wider(vld1q_u16(from), vld1q_u16(from + 8));
}

struct Floats4 {
    static constexpr int LANES = 4;

    float32x4_t v;

    static Floats4 set1(float x) { return {vdupq_n_f32(x)}; }

    static Floats4 load(const float * from) { return {vld1q_f32(from)}; }
    static Floats4 load(const ggml_fp16_t * from) { return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)))}; }
    static Floats4 load(const ggml_bf16_t * from) {
        return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t *>(from)), 16))};
    }

    void store(void * to) const { vst1q_f32(static_cast<float *>(to), v); }
};

using Floats8 = VectorPair<Floats4>;

inline Ints4 and_mask(Ints4 x, int mask) { return vandq_u8(x.bytes(), vdupq_n_u8(static_cast<uint8_t>(mask))); }

inline Ints4 shift_right(Ints4 x, int by) { return vshlq_u16(x.words(), vdupq_n_s16(static_cast<int16_t>(-by))); }
template <int BY>
Ints4 shift_right(Ints4 x) {
    return shift_right(x, BY);
}
template <int BY>
Ints4 shift_left(Ints4 x) {
    return shift_right(x, -BY);
}

inline Ints4 bit_or(Ints4 x, Ints4 y) { return vorrq_s32(x.v, y.v); }

template <int FIRST>
Ints4 spread_fifth_bits(Ints4 x) {
    const uint8x16_t which   = vreinterpretq_u8_u32(vdupq_n_u32(0x08040201u << FIRST % 8 / 4 * 4));
    const uint32_t   rows[4] = {0, 0x04040404, 0x08080808, 0x0C0C0C0C};
    const uint8x16_t byte    = vaddq_u8(vreinterpretq_u8_u32(vld1q_u32(rows)), vdupq_n_u8(FIRST / 8));
    return vandq_u8(vtstq_u8(vqtbl1q_u8(x.bytes(), byte), which), vdupq_n_u8(16));
}

inline Ints4 table_lookup(Ints4 places, const int8_t (&table)[16]) {
    return vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(table)), places.bytes());
}

inline Ints4 add(Ints4 x, Ints4 y) { return vaddq_s32(x.v, y.v); }
inline Ints4 multiply(Ints4 x, Ints4 y) { return vmulq_s32(x.v, y.v); }
inline Ints4 max_of(Ints4 x, Ints4 y) { return vmaxq_s32(x.v, y.v); }

inline Ints4 madd_words(Ints4 x, Ints4 y) {
    const int16x8_t p = x.signed_words(), q = y.signed_words();
    return vpaddq_s32(vmull_s16(vget_low_s16(p), vget_low_s16(q)), vmull_high_s16(p, q));
}

inline Ints4 pack_words(Ints4 x, Ints4 y) { return vsliq_n_s32(x.v, y.v, 16); }

inline int32_t reduce_max(Ints4 x) { return vmaxvq_s32(x.v); }

#ifdef __ARM_FEATURE_DOTPROD
inline Ints4 dot4_add(Ints4 sums, Ints4 weights, Ints4 activations) {
    return vdotq_s32(sums.v, weights.signed_bytes(), activations.signed_bytes());
}
#endif

// The weights may have a sign, so nothing has to be added.
constexpr int ZERO_POINT_OF_BYTES = 0;
inline Ints4  add_zero_point(Ints4 x) { return x; }

inline void store_bytes(int8_t * q, const Ints16 & x) {
    const int16x8_t low  = vcombine_s16(vqmovn_s32(x.a.a.v), vqmovn_s32(x.a.b.v));
    const int16x8_t high = vcombine_s16(vqmovn_s32(x.b.a.v), vqmovn_s32(x.b.b.v));
    vst1q_s8(q, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}

inline uint32_t sums_of_pairs(const int8_t * q) {
    const int16x8_t pairs = vpaddlq_s8(vld1q_s8(q));  // first, other, first, other, ...
    const int16x4_t sums  = vadd_s16(vget_low_s16(pairs), vget_high_s16(pairs));
    return vget_lane_u32(vreinterpret_u32_s16(vadd_s16(sums, vext_s16(sums, sums, 2))), 0);
}

inline Floats4 to_floats(Ints4 x) { return {vcvtq_f32_s32(x.v)}; }
inline Floats4 as_floats(Ints4 bits) { return {vreinterpretq_f32_s32(bits.v)}; }

inline Ints4   to_ints(Floats4 x) { return vcvtnq_s32_f32(x.v); }
inline Floats4 round_nearest(Floats4 x) { return {vrndnq_f32(x.v)}; }

inline Floats4 magnitude(Floats4 x) { return {vabsq_f32(x.v)}; }
inline Ints4   magnitude_bits(Floats4 x) { return vreinterpretq_s32_f32(magnitude(x).v); }

inline Floats4 operator+(Floats4 x, Floats4 y) { return {vaddq_f32(x.v, y.v)}; }
inline Floats4 operator-(Floats4 x, Floats4 y) { return {vsubq_f32(x.v, y.v)}; }
inline Floats4 operator*(Floats4 x, Floats4 y) { return {vmulq_f32(x.v, y.v)}; }
inline Floats4 operator/(Floats4 x, Floats4 y) { return {vdivq_f32(x.v, y.v)}; }

inline Floats4 multiply_add(Floats4 x, Floats4 y, Floats4 z) { return {vfmaq_f32(z.v, x.v, y.v)}; }

inline Floats4 select_less(Floats4 x, Floats4 y, Floats4 a, Floats4 b) {
    return {vbslq_f32(vcltq_f32(x.v, y.v), a.v, b.v)};
}

inline Floats4 max_of(Floats4 x, Floats4 y) { return select_less(y, x, x, y); }

inline Floats4 copy_sign(Floats4 y, Floats4 x) { return {vbslq_f32(vdupq_n_u32(0x80000000), y.v, x.v)}; }

inline Floats4 ldexp_of(Floats4 n, Floats4 x) {
    const int32x4_t exponent = vshlq_n_s32(vcvtnq_s32_f32(n.v), 23);
    return {vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x.v), exponent))};
}

inline Floats4 keep_lanes(Floats4 x, int low, int high) {
    const int32_t    lanes[4] = {0, 1, 2, 3};
    const int32x4_t  lane     = vld1q_s32(lanes);
    const uint32x4_t in       = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(low)), vcltq_s32(lane, vdupq_n_s32(high)));
    return {vbslq_f32(in, x.v, vdupq_n_f32(-__builtin_inff()))};
}

template <class Vector>
PYG_INLINE inline auto keep_in_register([[maybe_unused]] Vector & x) -> decltype(void(x.v)) {
#if defined(__GNUC__)
    asm("" : "+w"(x.v));
#endif
}

inline float32x2_t sums_of_two(Floats4 x) { return vadd_f32(vget_low_f32(x.v), vget_high_f32(x.v)); }

inline float reduce_add(Floats4 x) { return vget_lane_f32(vpadd_f32(sums_of_two(x), sums_of_two(x)), 0); }

inline void store_reduced(float * to, Floats4 a, Floats4 b, Floats4 c, Floats4 d) {
    vst1q_f32(to,
              vpaddq_f32(vcombine_f32(sums_of_two(a), sums_of_two(b)), vcombine_f32(sums_of_two(c), sums_of_two(d))));
}

inline float reduce_max(Floats4 x) { return vmaxvq_f32(x.v); }

inline uint32_t equal_mask(const uint16_t * values, uint16_t value) {
    const uint16x8_t powers = {1, 2, 4, 8, 16, 32, 64, 128};
    uint32_t         bits   = 0;
    for (int i = 0; i < 4; ++i) {
        const uint16x8_t same = vceqq_u16(vld1q_u16(values + 8 * i), vdupq_n_u16(value));
        bits |= static_cast<uint32_t>(vaddvq_u16(vandq_u16(same, powers))) << (8 * i);
    }
    return bits;
}

inline float to_float(ggml_fp16_t x) {
    __fp16 half;
    std::memcpy(&half, &x, sizeof(half));
    return static_cast<float>(half);
}

#ifdef __ARM_FEATURE_MATMUL_INT8
#    define PYG_DOT8

// The four bytes of eight rows and the next four, side by side: eight to a row, two rows in a register.
inline Ints16 side_by_side(const Ints8 & x, const Ints8 & next) {
    return {{vzip1q_s32(x.a.v, next.a.v), vzip2q_s32(x.a.v, next.a.v)},
            {vzip1q_s32(x.b.v, next.b.v), vzip2q_s32(x.b.v, next.b.v)}};
}

// Add eight values of two rows, as side_by_side() puts them, times those of two columns. A register has the sums of
// both columns for the first row, and then those for the second.
inline Ints4 multiply_two_rows(Ints4 sums, Ints4 rows, int8x16_t columns) {
    return vmmlaq_s32(sums.v, rows.signed_bytes(), columns);
}

// The sums of one column.
template <int COLUMN>
Ints16 column_of(const VectorPair<Ints16> & sums) {
    const auto of_four_rows = [](const Ints8 & x) -> Ints4 {
        return COLUMN == 0 ? vuzp1q_s32(x.a.v, x.b.v) : vuzp2q_s32(x.a.v, x.b.v);
    };
    return {{of_four_rows(sums.a.a), of_four_rows(sums.a.b)}, {of_four_rows(sums.b.a), of_four_rows(sums.b.b)}};
}
#endif

}  // namespace pyg::kernels
