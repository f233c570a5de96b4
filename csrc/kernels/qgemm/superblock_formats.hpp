// Types with 256 values in a block, whose segments have scales of their own.
#pragma once

#include "kernels/qgemm/tile.hpp"

namespace pyg::kernels {

// Scales and minima of Q4_K and Q5_K: 6 bits each, eight of both in 12 bytes. Minima are taken off, so their factor is
// negative.
inline void unpack_scales_and_minima(const uint8_t * block, Factors & factors) {
    unpack_halves(block, 0, factors.d[0]);
    store(factors.m[0], multiply(everywhere(-1.0F), load_half_floats(block + GROUP_ROWS * 2)));
    Ints minima[8];
    unrolled<4>([&](auto j) PYG_INLINE {
        const Ints a  = load_bytes(block + GROUP_ROWS * (4 + j));
        const Ints b  = load_bytes(block + GROUP_ROWS * (8 + j));
        const Ints c  = load_bytes(block + GROUP_ROWS * (12 + j));
        minima[j]     = masked(b, 63);
        minima[j + 4] = either(down<4>(c), up<4>(down<6>(b)));
        store(factors.scales[j], NarrowDots::scales(masked(a, 63)));
        store(factors.scales[j + 4], NarrowDots::scales(either(masked(c, 15), up<4>(down<6>(a)))));
    });
    unrolled<4>([&](auto p) PYG_INLINE { store(factors.offsets[p], pairs(minima[2 * p], minima[2 * p + 1])); });
}

// What Q4_K and Q5_K share.
struct TypeWithMinima {
    static constexpr int  BLOCK      = 256;
    static constexpr int  SEGMENT    = 32;
    static constexpr int  PARTS      = 4;
    static constexpr int  UNITS      = 8;
    static constexpr int  PLUS       = 0;
    static constexpr bool MINIMA     = true;
    static constexpr bool LARGE      = false;
    static constexpr int  SCALE_BITS = 6;
    using Dots                       = NarrowDots;

    static constexpr int64_t segment_of(int64_t part, int i) { return 2 * part + i; }

    static void factors(const uint8_t * block, Factors & factors, int) { unpack_scales_and_minima(block, factors); }
};

struct TilesQ4K : TypeWithMinima {
    using Struct              = block_q4_K;
    static constexpr int MOST = 15;

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t part, Sums & sums) {
        const Ints units = units_at(block, 16 + 32 * part + 4 * U);
        sums.template add<0, U>(low_halves(units));
        sums.template add<1, U>(high_halves(units));
    }
};

struct TilesQ5K : TypeWithMinima {
    using Struct              = block_q5_K;
    static constexpr int MOST = 31;

    // The fifth bits of a part are two of each byte's.
    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t part, Sums & sums) {
        const Ints bits  = down(units_at(block, 16 + 4 * U), 2 * part);
        const Ints units = units_at(block, 48 + 32 * part + 4 * U);
        sums.template add<0, U>(either(low_halves(units), masked(up<4>(bits), 16)));
        sums.template add<1, U>(either(high_halves(units), masked(up<3>(bits), 16)));
    }
};

struct TilesQ6K {
    using Struct                     = block_q6_K;
    static constexpr int  BLOCK      = 256;
    static constexpr int  SEGMENT    = 16;
    static constexpr int  PARTS      = 4;
    static constexpr int  UNITS      = 4;
    static constexpr int  PLUS       = 32;
    static constexpr bool MINIMA     = false;
    static constexpr bool LARGE      = false;
    static constexpr int  SCALE_BITS = 8;
    using Dots                       = NarrowDots;

    static constexpr int64_t segment_of(int64_t part, int i) { return part / 2 * 8 + part % 2 + 2 * i; }

    static void factors(const uint8_t * block, Factors & factors, int) {
        unpack_halves(block, 0, factors.d[0]);
        unrolled<16>([&](auto s) PYG_INLINE {
            store(factors.scales[s], NarrowDots::scales(load_signed_bytes(block + GROUP_ROWS * (2 + s))));
        });
    }

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t part, Sums & sums) {
        const int64_t at     = 18 + 48 * part + 4 * U;
        const Ints    first  = units_at(block, at);
        const Ints    second = units_at(block, at + 16);
        const Ints    bits   = units_at(block, at + 32);
        sums.template add<0, U>(either(low_halves(first), up<4>(masked(bits, 3))));
        sums.template add<1, U>(either(low_halves(second), up<2>(masked(bits, 12))));
        sums.template add<2, U>(either(high_halves(first), masked(bits, 48)));
        sums.template add<3, U>(either(high_halves(second), masked(down<2>(bits), 48)));
    }
};

// Values are looked up; scales have 6 bits, 32 too much.
struct TilesIQ4XS {
    using Struct                     = block_iq4_xs;
    static constexpr int  BLOCK      = 256;
    static constexpr int  SEGMENT    = 32;
    static constexpr int  PARTS      = 8;
    static constexpr int  UNITS      = 4;
    static constexpr int  PLUS       = WideDots::PLUS;
    static constexpr bool MINIMA     = false;
    static constexpr bool LARGE      = false;
    static constexpr int  SCALE_BITS = 6;
    using Dots                       = WideDots;

    static constexpr int64_t segment_of(int64_t part, int) { return part; }

    template <int SEGMENT_NUMBER>
    static void unpack_scale(const uint8_t * block, Factors & factors) {
        const Ints bytes = load_bytes(block + GROUP_ROWS * (4 + SEGMENT_NUMBER / 2));
        const Ints low   = SEGMENT_NUMBER % 2 == 0 ? low_halves(bytes) : high_halves(bytes);
        const Ints high  = down<14>(up<14 - 2 * SEGMENT_NUMBER>(load_words(block + GROUP_ROWS * 2)));
        store(factors.scales[SEGMENT_NUMBER], Dots::scales(add(either(low, up<4>(high)), everywhere(-32))));
    }

    static void factors(const uint8_t * block, Factors & factors, int) {
        unpack_halves(block, 0, factors.d[0]);
        unrolled<8>([&](auto s) PYG_INLINE { unpack_scale<s>(block, factors); });
    }

    template <int U, class Sums>
    PYG_INLINE static void unit(const uint8_t * block, int64_t part, Sums & sums) {
        const Ints units = units_at(block, 8 + 16 * part + 4 * U);
        Dots::add_bytes<0, U>(sums, looked_up(low_halves(units), IQ4_VALUES));
        Dots::add_bytes<0, U + 4>(sums, looked_up(high_halves(units), IQ4_VALUES));
    }
};

}  // namespace pyg::kernels
