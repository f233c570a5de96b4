// Eight floats in two registers of NEON.
#pragma once

#include "ggml.h"

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace pyg::kernels {

struct Floats8 {
    static constexpr int LANES = 8;

    float32x4_t a, b;

    static Floats8 everywhere(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }

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
inline Floats8 if_less(Floats8 x, Floats8 y, Floats8 a, Floats8 b) {
    return {vbslq_f32(vcltq_f32(x.a, y.a), a.a, b.a), vbslq_f32(vcltq_f32(x.b, y.b), a.b, b.b)};
}

// y where x is not a number
inline Floats8 larger(Floats8 x, Floats8 y) { return if_less(y, x, x, y); }

inline Floats8 magnitude(Floats8 x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }

// x, which has no sign, with the sign of y
inline Floats8 with_sign_of(Floats8 y, Floats8 x) {
    const uint32x4_t sign = vdupq_n_u32(0x80000000);
    return {vbslq_f32(sign, y.a, x.a), vbslq_f32(sign, y.b, x.b)};
}

// To the nearest integer, and to the even one of two.
inline Floats8 rounded(Floats8 x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }

// x * 2^n of integers n, where neither x nor the result is less than the least normal number.
inline Floats8 times_two_to(Floats8 n, Floats8 x) {
    const auto one = [](float32x4_t power, float32x4_t factor) {
        const int32x4_t exponent = vshlq_n_s32(vcvtnq_s32_f32(power), 23);
        return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(factor), exponent));
    };
    return {one(n.a, x.a), one(n.b, x.b)};
}

// The lanes of x from `low` up to `high`, and -infinity in the others.
inline Floats8 within(Floats8 x, int low, int high) {
    const int32_t     lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const float32x4_t out      = vdupq_n_f32(-__builtin_inff());
    const auto        one      = [&](float32x4_t part, int32x4_t lane) {
        const uint32x4_t in = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(low)), vcltq_s32(lane, vdupq_n_s32(high)));
        return vbslq_f32(in, part, out);
    };
    return {one(x.a, vld1q_s32(lanes)), one(x.b, vld1q_s32(lanes + 4))};
}

// Keeps x in registers: compilers would rather read it again from memory for each of its uses.
inline void keep([[maybe_unused]] Floats8 & x) {
#if defined(__GNUC__)
    asm("" : "+w"(x.a), "+w"(x.b));
#endif
}

// All sums of lanes go in this order: i and i + 4, then i and i + 2, then both.
inline float sum_of(Floats8 x) {
    const float32x4_t four = vaddq_f32(x.a, x.b);
    const float32x2_t two  = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(vpadd_f32(two, two), 0);
}

// Writes sum_of() of each of four vectors.
inline void store_sums(float * to, Floats8 a, Floats8 b, Floats8 c, Floats8 d) {
    const auto two = [](Floats8 x) {
        const float32x4_t four = vaddq_f32(x.a, x.b);
        return vadd_f32(vget_low_f32(four), vget_high_f32(four));
    };
    vst1q_f32(to, vpaddq_f32(vcombine_f32(two(a), two(b)), vcombine_f32(two(c), two(d))));
}

inline float largest_of(Floats8 x) { return vmaxvq_f32(vmaxq_f32(x.a, x.b)); }

// Eight lanes more for a sum of eight lanes.
inline Floats8 add_to(Floats8 sums, Floats8 x) { return sums + x; }

// A bit for each of 32 half floats that has the bits `value`, from the lowest.
inline uint32_t equal_bits(const uint16_t * values, uint16_t value) {
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
