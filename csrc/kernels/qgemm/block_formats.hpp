// Types with 32 values in a block, which are a single segment. Where a byte has two values, the low half belongs to the
// first 16 of the block, the high one to the others.
#pragma once

#include "kernels/qgemm/tile.hpp"

namespace pyg::kernels {

struct TypeOfBlocks {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PARTS   = 1;
    static constexpr int  UNITS   = 4;
    static constexpr bool LARGE   = false;

    static constexpr int64_t segment_of(int64_t, int) { return 0; }
};

// With a factor of 16 bits.
struct TypeWithFactor : TypeOfBlocks {
    static constexpr bool MINIMA = false;

    static void factors(const uint8_t * block, Factors & factors, int b) { unpack_halves(block, 0, factors.d[b]); }
};

// And with a minimum of 16 bits.
struct TypeWithMinimum : TypeOfBlocks {
    static constexpr int  PLUS   = 0;
    static constexpr bool MINIMA = true;
    using Dots                   = NarrowDots;

    static void factors(const uint8_t * block, Factors & factors, int b) {
        unpack_halves(block, 0, factors.d[b]);
        unpack_halves(block, 2, factors.m[b]);
    }
};

struct TilesQ40 : TypeWithFactor {
    using Struct              = block_q4_0;
    static constexpr int PLUS = 8;
    using Dots                = NarrowDots;

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 2 + 4 * U);
        sums.template add<0, U>(low_halves(units));
        sums.template add<0, U + 4>(high_halves(units));
    }
};

struct TilesQ41 : TypeWithMinimum {
    using Struct              = block_q4_1;
    static constexpr int MOST = 15;

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 4 + 4 * U);
        sums.template add<0, U>(low_halves(units));
        sums.template add<0, U + 4>(high_halves(units));
    }
};

struct TilesQ50 : TypeWithFactor {
    using Struct              = block_q5_0;
    static constexpr int PLUS = 16;
    using Dots                = NarrowDots;

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t, Sums & sums) {
        const Ints fifth = units_at(block, 2);
        const Ints units = units_at(block, 6 + 4 * U);
        sums.template add<0, U>(either(low_halves(units), four_fifth_bits<4 * U>(fifth)));
        sums.template add<0, U + 4>(either(high_halves(units), four_fifth_bits<16 + 4 * U>(fifth)));
    }
};

struct TilesQ51 : TypeWithMinimum {
    using Struct              = block_q5_1;
    static constexpr int MOST = 31;

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t, Sums & sums) {
        const Ints fifth = units_at(block, 4);
        const Ints units = units_at(block, 8 + 4 * U);
        sums.template add<0, U>(either(low_halves(units), four_fifth_bits<4 * U>(fifth)));
        sums.template add<0, U + 4>(either(high_halves(units), four_fifth_bits<16 + 4 * U>(fifth)));
    }
};

struct TilesQ80 : TypeWithFactor {
    using Struct               = block_q8_0;
    static constexpr int UNITS = 8;
    static constexpr int PLUS  = WideDots::PLUS;
    using Dots                 = WideDots;

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t, Sums & sums) {
        Dots::add_bytes<0, U>(sums, units_at(block, 2 + 4 * U));
    }
};

// Values are looked up.
struct TilesIQ4NL : TypeWithFactor {
    using Struct              = block_iq4_nl;
    static constexpr int PLUS = WideDots::PLUS;
    using Dots                = WideDots;

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 2 + 4 * U);
        Dots::add_bytes<0, U>(sums, looked_up(low_halves(units), IQ4_VALUES));
        Dots::add_bytes<0, U + 4>(sums, looked_up(high_halves(units), IQ4_VALUES));
    }
};

// Values are floats of 4 bits: twice their value is looked up, 12 too much. The factor is a power of 2.
struct TilesMXFP4 : TypeOfBlocks {
    using Struct                 = block_mxfp4;
    static constexpr int  PLUS   = 12;
    static constexpr bool MINIMA = false;
    static constexpr bool LARGE  = true;
    using Dots                   = NarrowDots;

    static constexpr int8_t VALUES[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

    // Half of 2^(exponent - 127), of which the bits are (exponent - 1) << 23; those of the smallest two have no
    // exponent.
    static void factors(const uint8_t * block, Factors & factors, int b) {
        const Ints exponent = load_bytes(block);
        const Ints tiny     = multiply(add(exponent, everywhere(1)), everywhere(1 << 21));
        const Ints bits     = multiply(add(exponent, everywhere(-1)), everywhere(1 << 23));
        store(factors.d[b], as_floats(larger(bits, tiny)));
    }

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t, Sums & sums) {
        const Ints units = units_at(block, 1 + 4 * U);
        sums.template add<0, U>(looked_up(low_halves(units), VALUES));
        sums.template add<0, U + 4>(looked_up(high_halves(units), VALUES));
    }
};

}  // namespace pyg::kernels
