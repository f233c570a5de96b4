// Formats with blocks of 32 values and no sub-blocks. Where a byte has two values, the low half belongs to the first 16
// of the block, the high half to the others.
#pragma once

#include "kernels/qgemm/tile.hpp"

namespace pyg::kernels {

struct BlockFormat : Format {
    static constexpr int BLOCK          = 32;
    static constexpr int SUB_BLOCK      = 32;
    static constexpr int PARTS          = 1;
    static constexpr int LOADS_PER_PART = 4;

    static constexpr int64_t sub_block_of(int64_t, int) { return 0; }
};

// Formats with an f16 scale.
struct ScaleFormat : BlockFormat {
    static constexpr int FACTOR_BYTES = 2;

    static void unpack_scales(const uint8_t * block, BlockScales & scales, int b) {
        halves_at(block, 0).store(scales.d[b]);
    }
};

// Formats with an f16 scale and an f16 minimum.
struct ScaleMinFormat : BlockFormat {
    static constexpr bool HAS_MIN      = true;
    static constexpr int  FACTOR_BYTES = 4;

    static void unpack_scales(const uint8_t * block, BlockScales & scales, int b) {
        halves_at(block, 0).store(scales.d[b]);
        halves_at(block, 2).store(scales.m[b]);
    }
};

template <class Factors>
struct FourBits : Factors {
    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, Factors::FACTOR_BYTES + 4 * U);
        sums.template add<0, U>(low_halves(units));
        sums.template add<0, U + 4>(high_halves(units));
    }
};

// The fifth bits of all values come first.
template <class Factors>
struct FiveBits : Factors {
    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints fifth = units_at(block, Factors::FACTOR_BYTES);
        const Ints units = units_at(block, Factors::FACTOR_BYTES + 4 + 4 * U);
        sums.template add<0, U>(bit_or(low_halves(units), spread_fifth_bits<4 * U>(fifth)));
        sums.template add<0, U + 4>(bit_or(high_halves(units), spread_fifth_bits<16 + 4 * U>(fifth)));
    }
};

struct Q4_0 : FourBits<ScaleFormat> {
    using Struct                    = block_q4_0;
    static constexpr int ZERO_POINT = 8;
};

struct Q4_1 : FourBits<ScaleMinFormat> {
    using Struct                   = block_q4_1;
    static constexpr int MAX_VALUE = 15;
};

struct Q5_0 : FiveBits<ScaleFormat> {
    using Struct                    = block_q5_0;
    static constexpr int ZERO_POINT = 16;
};

struct Q5_1 : FiveBits<ScaleMinFormat> {
    using Struct                   = block_q5_1;
    static constexpr int MAX_VALUE = 31;
};

struct Q8_0 : ScaleFormat {
    using Struct                        = block_q8_0;
    using Dots                          = WideDots;
    static constexpr int LOADS_PER_PART = 8;
    static constexpr int ZERO_POINT     = Dots::ZERO_POINT;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        Dots::add_bytes<0, U>(sums, units_at(block, 2 + 4 * U));
    }
};

// Values come from a table.
struct IQ4_NL : ScaleFormat {
    using Struct                    = block_iq4_nl;
    using Dots                      = WideDots;
    static constexpr int ZERO_POINT = Dots::ZERO_POINT;

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        add_iq4_values<U>(units_at(block, 2 + 4 * U), sums);
    }
};

// 4-bit floats: the table has twice their value plus the zero point 12. The scale is a power of two.
struct MXFP4 : BlockFormat {
    using Struct                         = block_mxfp4;
    static constexpr int  ZERO_POINT     = 12;
    static constexpr bool EXPONENT_SCALE = true;

    static constexpr int8_t VALUES[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

    // Half of 2^(exponent - 127), of which the bits are (exponent - 1) << 23; those of the smallest two have no
    // exponent.
    static void unpack_scales(const uint8_t * block, BlockScales & scales, int b) {
        const Ints exponent = Ints::load(block);
        const Ints tiny     = multiply(add(exponent, Ints::set1(1)), Ints::set1(1 << 21));
        const Ints bits     = multiply(add(exponent, Ints::set1(-1)), Ints::set1(1 << 23));
        as_floats(max_of(bits, tiny)).store(scales.d[b]);
    }

    template <int U, class Sums>
    PYG_INLINE static void unpack(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 1 + 4 * U);
        sums.template add<0, U>(table_lookup(low_halves(units), VALUES));
        sums.template add<0, U + 4>(table_lookup(high_halves(units), VALUES));
    }
};

}  // namespace pyg::kernels
