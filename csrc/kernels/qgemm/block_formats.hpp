// Formats with blocks of 32 values and no sub-blocks. Where a byte has two values, the low half belongs to the first 16
// of the block, the high half to the others.
#pragma once

#include "kernels/qgemm/tile.hpp"

namespace pyg::kernels {

struct BlockFormat {
    static constexpr int  BLOCK          = 32;
    static constexpr int  SUB_BLOCK      = 32;
    static constexpr int  PARTS          = 1;
    static constexpr int  LOADS_PER_PART = 4;
    static constexpr bool EXPONENT_SCALE = false;

    static constexpr int64_t sub_block_of(int64_t, int) { return 0; }
};

// Formats with an f16 scale.
struct ScaleFormat : BlockFormat {
    static constexpr bool HAS_MIN = false;

    static void unpack_scales(const uint8_t * block, BlockScales & scales, int b) {
        unpack_halves(block, 0, scales.d[b]);
    }
};

// Formats with an f16 scale and an f16 minimum.
struct ScaleMinFormat : BlockFormat {
    static constexpr int  ZERO_POINT = 0;
    static constexpr bool HAS_MIN    = true;
    using Dots                       = NarrowDots;

    static void unpack_scales(const uint8_t * block, BlockScales & scales, int b) {
        unpack_halves(block, 0, scales.d[b]);
        unpack_halves(block, 2, scales.m[b]);
    }
};

struct Q4_0 : ScaleFormat {
    using Struct                    = block_q4_0;
    static constexpr int ZERO_POINT = 8;
    using Dots                      = NarrowDots;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 2 + 4 * U);
        sums.template add<0, U>(low_halves(units));
        sums.template add<0, U + 4>(high_halves(units));
    }
};

struct Q4_1 : ScaleMinFormat {
    using Struct                   = block_q4_1;
    static constexpr int MAX_VALUE = 15;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 4 + 4 * U);
        sums.template add<0, U>(low_halves(units));
        sums.template add<0, U + 4>(high_halves(units));
    }
};

struct Q5_0 : ScaleFormat {
    using Struct                    = block_q5_0;
    static constexpr int ZERO_POINT = 16;
    using Dots                      = NarrowDots;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints fifth = units_at(block, 2);
        const Ints units = units_at(block, 6 + 4 * U);
        sums.template add<0, U>(bit_or(low_halves(units), spread_fifth_bits<4 * U>(fifth)));
        sums.template add<0, U + 4>(bit_or(high_halves(units), spread_fifth_bits<16 + 4 * U>(fifth)));
    }
};

struct Q5_1 : ScaleMinFormat {
    using Struct                   = block_q5_1;
    static constexpr int MAX_VALUE = 31;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints fifth = units_at(block, 4);
        const Ints units = units_at(block, 8 + 4 * U);
        sums.template add<0, U>(bit_or(low_halves(units), spread_fifth_bits<4 * U>(fifth)));
        sums.template add<0, U + 4>(bit_or(high_halves(units), spread_fifth_bits<16 + 4 * U>(fifth)));
    }
};

struct Q8_0 : ScaleFormat {
    using Struct                        = block_q8_0;
    static constexpr int LOADS_PER_PART = 8;
    static constexpr int ZERO_POINT     = WideDots::ZERO_POINT;
    using Dots                          = WideDots;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        Dots::add_bytes<0, U>(sums, units_at(block, 2 + 4 * U));
    }
};

// Values come from a table.
struct IQ4_NL : ScaleFormat {
    using Struct                    = block_iq4_nl;
    static constexpr int ZERO_POINT = WideDots::ZERO_POINT;
    using Dots                      = WideDots;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 2 + 4 * U);
        Dots::add_bytes<0, U>(sums, table_lookup(low_halves(units), IQ4_VALUES));
        Dots::add_bytes<0, U + 4>(sums, table_lookup(high_halves(units), IQ4_VALUES));
    }
};

// 4-bit floats: the table has twice their value plus the zero point 12. The scale is a power of two.
struct MXFP4 : BlockFormat {
    using Struct                         = block_mxfp4;
    static constexpr int  ZERO_POINT     = 12;
    static constexpr bool HAS_MIN        = false;
    static constexpr bool EXPONENT_SCALE = true;
    using Dots                           = NarrowDots;

    static constexpr int8_t VALUES[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

    // Half of 2^(exponent - 127), of which the bits are (exponent - 1) << 23; those of the smallest two have no
    // exponent.
    static void unpack_scales(const uint8_t * block, BlockScales & scales, int b) {
        const Ints exponent = load_bytes(block);
        const Ints tiny     = multiply(add(exponent, set1(1)), set1(1 << 21));
        const Ints bits     = multiply(add(exponent, set1(-1)), set1(1 << 23));
        store(scales.d[b], as_floats(max_of(bits, tiny)));
    }

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 1 + 4 * U);
        sums.template add<0, U>(table_lookup(low_halves(units), VALUES));
        sums.template add<0, U + 4>(table_lookup(high_halves(units), VALUES));
    }
};

}  // namespace pyg::kernels
