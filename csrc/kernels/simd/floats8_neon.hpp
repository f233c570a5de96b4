// NEON: eight floats in two registers.
#pragma once

#include "ggml.h"

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace pyg::kernels {

struct Floats8 {
    static constexpr int LANES = 8;

    float32x4_t a, b;

    static Floats8 set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }

    static Floats8 load(const float * from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
    static Floats8 load(const ggml_fp16_t * from) {
        const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(from));
        return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
    }
    static Floats8 load(const ggml_bf16_t * from) {
        const uint16x8_t halves = vld1q_u16(reinterpret_cast<const uint16_t *>(from));
        return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(halves, 16))};
    }

    void store(float * to) const {
        vst1q_f32(to, a);
        vst1q_f32(to + 4, b);
    }
};

inline Floats8 operator+(Floats8 x, Floats8 y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
inline Floats8 operator-(Floats8 x, Floats8 y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
inline Floats8 operator*(Floats8 x, Floats8 y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
inline Floats8 operator/(Floats8 x, Floats8 y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }

// x * y + z, rounded once
inline Floats8 multiply_add(Floats8 x, Floats8 y, Floats8 z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
}

// a where x < y, otherwise b
inline Floats8 select_less(Floats8 x, Floats8 y, Floats8 a, Floats8 b) {
    return {vbslq_f32(vcltq_f32(x.a, y.a), a.a, b.a), vbslq_f32(vcltq_f32(x.b, y.b), a.b, b.b)};
}

// y where x is NaN
inline Floats8 max_of(Floats8 x, Floats8 y) { return select_less(y, x, x, y); }

inline Floats8 magnitude(Floats8 x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }

// |x| with the sign of y, for x >= 0
inline Floats8 copy_sign(Floats8 y, Floats8 x) {
    const uint32x4_t sign = vdupq_n_u32(0x80000000);
    return {vbslq_f32(sign, y.a, x.a), vbslq_f32(sign, y.b, x.b)};
}

// Round to nearest, ties to even.
inline Floats8 round_nearest(Floats8 x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }

// x * 2^n for integer n; x and the result must be normal.
inline Floats8 ldexp_of(Floats8 n, Floats8 x) {
    const auto one = [](float32x4_t power, float32x4_t factor) {
        const int32x4_t exponent = vshlq_n_s32(vcvtnq_s32_f32(power), 23);
        return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(factor), exponent));
    };
    return {one(n.a, x.a), one(n.b, x.b)};
}

// Lanes [low, high) of x, and -infinity in the others.
inline Floats8 keep_lanes(Floats8 x, int low, int high) {
    const int32_t     lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const float32x4_t out      = vdupq_n_f32(-__builtin_inff());
    const auto        one      = [&](float32x4_t part, int32x4_t lane) {
        const uint32x4_t in = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(low)), vcltq_s32(lane, vdupq_n_s32(high)));
        return vbslq_f32(in, part, out);
    };
    return {one(x.a, vld1q_s32(lanes)), one(x.b, vld1q_s32(lanes + 4))};
}

// Force x into registers: compilers would otherwise reload it for each use.
inline void keep_in_register([[maybe_unused]] Floats8 & x) {
#if defined(__GNUC__)
    asm("" : "+w"(x.a), "+w"(x.b));
#endif
}

// All horizontal sums use this order: i and i + 4, then i and i + 2, then both.
inline float reduce_add(Floats8 x) {
    const float32x4_t four = vaddq_f32(x.a, x.b);
    const float32x2_t two  = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(vpadd_f32(two, two), 0);
}

// Store reduce_add() of four vectors.
inline void store_reduced(float * to, Floats8 a, Floats8 b, Floats8 c, Floats8 d) {
    const auto two = [](Floats8 x) {
        const float32x4_t four = vaddq_f32(x.a, x.b);
        return vadd_f32(vget_low_f32(four), vget_high_f32(four));
    };
    vst1q_f32(to, vpaddq_f32(vcombine_f32(two(a), two(b)), vcombine_f32(two(c), two(d))));
}

inline float reduce_max(Floats8 x) { return vmaxvq_f32(vmaxq_f32(x.a, x.b)); }

// Add eight lanes to a sum of eight lanes.
inline Floats8 add_to(Floats8 sums, Floats8 x) { return sums + x; }

// Bit mask of the 32 half floats that equal `value` bitwise.
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

}  // namespace pyg::kernels
