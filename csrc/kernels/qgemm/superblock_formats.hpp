// Formats with super-blocks of 256 values, whose sub-blocks have their own scales.
#pragma once

#include "kernels/qgemm/tile.hpp"

namespace pyg::kernels {

// Common part of Q4_K and Q5_K.
struct SubBlockMinFormat : Format {
    static constexpr int  BLOCK          = 256;
    static constexpr int  SUB_BLOCK      = 32;
    static constexpr int  PARTS          = 4;
    static constexpr int  LOADS_PER_PART = 8;
    static constexpr bool HAS_MIN        = true;
    static constexpr int  SCALE_BITS     = 6;

    static constexpr int64_t sub_block_of(int64_t part, int i) { return 2 * part + i; }

    // Scales and minima: 6 bits each, eight of both in 12 bytes. Minima are subtracted, so their scale is negative.
    static void unpack_scales(const uint8_t * block, BlockScales & scales, int) {
        halves_at(block, 0).store(scales.d[0]);
        (Floats::set1(-1.0F) * halves_at(block, 2)).store(scales.m[0]);
        Ints minima[8];
        unroll<4>([&](auto j) PYG_INLINE {
            const Ints a  = Ints::load(block + GROUP_ROWS * (4 + j));
            const Ints b  = Ints::load(block + GROUP_ROWS * (8 + j));
            const Ints c  = Ints::load(block + GROUP_ROWS * (12 + j));
            minima[j]     = and_mask(b, 63);
            minima[j + 4] = bit_or(shift_right<4>(c), shift_left<4>(shift_right<6>(b)));
            Dots::scales(and_mask(a, 63)).store(scales.sub_scales[j]);
            const Ints last = bit_or(and_mask(c, 15), shift_left<4>(shift_right<6>(a)));
            Dots::scales(last).store(scales.sub_scales[j + 4]);
        });
        unroll<4>([&](auto p) PYG_INLINE { pack_words(minima[2 * p], minima[2 * p + 1]).store(scales.sub_mins[p]); });
    }
};

struct Q4_K : SubBlockMinFormat {
    using Struct                   = block_q4_K;
    static constexpr int MAX_VALUE = 15;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t part, Sums & sums) {
        const Ints units = units_at(block, 16 + 32 * part + 4 * U);
        sums.template add<0, U>(low_halves(units));
        sums.template add<1, U>(high_halves(units));
    }
};

struct Q5_K : SubBlockMinFormat {
    using Struct                   = block_q5_K;
    static constexpr int MAX_VALUE = 31;

    // Each byte of the high bits has two fifth bits of each part.
    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t part, Sums & sums) {
        const Ints bits  = shift_right(units_at(block, 16 + 4 * U), 2 * part);
        const Ints units = units_at(block, 48 + 32 * part + 4 * U);
        sums.template add<0, U>(bit_or(low_halves(units), and_mask(shift_left<4>(bits), 16)));
        sums.template add<1, U>(bit_or(high_halves(units), and_mask(shift_left<3>(bits), 16)));
    }
};

struct Q6_K : Format {
    using Struct                        = block_q6_K;
    static constexpr int BLOCK          = 256;
    static constexpr int SUB_BLOCK      = 16;
    static constexpr int PARTS          = 4;
    static constexpr int LOADS_PER_PART = 4;
    static constexpr int ZERO_POINT     = 32;
    static constexpr int SCALE_BITS     = 8;

    static constexpr int64_t sub_block_of(int64_t part, int i) { return part / 2 * 8 + part % 2 + 2 * i; }

    static void unpack_scales(const uint8_t * block, BlockScales & scales, int) {
        halves_at(block, 0).store(scales.d[0]);
        unroll<16>([&](auto s) PYG_INLINE {
            const auto bytes = reinterpret_cast<const int8_t *>(block + GROUP_ROWS * (2 + s));
            Dots::scales(Ints::load(bytes)).store(scales.sub_scales[s]);
        });
    }

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t part, Sums & sums) {
        const int64_t at     = 18 + 48 * part + 4 * U;
        const Ints    first  = units_at(block, at);
        const Ints    second = units_at(block, at + 16);
        const Ints    bits   = units_at(block, at + 32);
        sums.template add<0, U>(bit_or(low_halves(first), shift_left<4>(and_mask(bits, 3))));
        sums.template add<1, U>(bit_or(low_halves(second), shift_left<2>(and_mask(bits, 12))));
        sums.template add<2, U>(bit_or(high_halves(first), and_mask(bits, 48)));
        sums.template add<3, U>(bit_or(high_halves(second), and_mask(shift_right<2>(bits), 48)));
    }
};

// Values come from a table; scales have 6 bits and a zero point of 32.
struct IQ4_XS : Format {
    using Struct                        = block_iq4_xs;
    using Dots                          = WideDots;
    static constexpr int BLOCK          = 256;
    static constexpr int SUB_BLOCK      = 32;
    static constexpr int PARTS          = 8;
    static constexpr int LOADS_PER_PART = 4;
    static constexpr int ZERO_POINT     = Dots::ZERO_POINT;
    static constexpr int SCALE_BITS     = 6;

    static constexpr int64_t sub_block_of(int64_t part, int) { return part; }

    template <int SUB_BLOCK_INDEX>
    static void unpack_scale(const uint8_t * block, BlockScales & scales) {
        const Ints bytes = Ints::load(block + GROUP_ROWS * (4 + SUB_BLOCK_INDEX / 2));
        const Ints low   = SUB_BLOCK_INDEX % 2 == 0 ? low_halves(bytes) : high_halves(bytes);
        const Ints words = Ints::load(reinterpret_cast<const uint16_t *>(block + GROUP_ROWS * 2));
        const Ints high  = shift_right<14>(shift_left<14 - 2 * SUB_BLOCK_INDEX>(words));
        const Ints scale = add(bit_or(low, shift_left<4>(high)), Ints::set1(-32));
        Dots::scales(scale).store(scales.sub_scales[SUB_BLOCK_INDEX]);
    }

    static void unpack_scales(const uint8_t * block, BlockScales & scales, int) {
        halves_at(block, 0).store(scales.d[0]);
        unroll<8>([&](auto s) PYG_INLINE { unpack_scale<s>(block, scales); });
    }

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t part, Sums & sums) {
        add_iq4_values<U>(units_at(block, 8 + 16 * part + 4 * U), sums);
    }
};

}  // namespace pyg::kernels
