// Types with 256 values in a block, whose segments have scales of their own.
#pragma once

#include "tiles.hpp"

namespace pyg::kernels {

// Scales and minima of Q4_K and Q5_K: 6 bits each, eight of both in 12 bytes.
inline void unpack_scales_and_minima(const uint8_t * block, int byte, Tile & tile) {
    Ints minima[8];
    for (int j = 0; j < 4; ++j) {
        const Ints a  = load_bytes(block + GROUP_ROWS * (byte + j));
        const Ints b  = load_bytes(block + GROUP_ROWS * (byte + j + 4));
        const Ints c  = load_bytes(block + GROUP_ROWS * (byte + j + 8));
        minima[j]     = masked(b, 63);
        minima[j + 4] = either(down<4>(c), up<4>(down<6>(b)));
        store(tile.scales[j], NarrowDots::scales(masked(a, 63)));
        store(tile.scales[j + 4], NarrowDots::scales(either(masked(c, 15), up<4>(down<6>(a)))));
    }
    for (int p = 0; p < 4; ++p) {
        store(tile.offsets[p], pairs(minima[2 * p], minima[2 * p + 1]));
    }
}

// Minima are taken off, so their factor is negative.
inline void unpack_minimum_factors(const uint8_t * block, Tile & tile) {
    store(tile.m[0], multiply(everywhere(-1.0F), load_half_floats(block + GROUP_ROWS * 2)));
}

struct TilesQ4K {
    static constexpr int  BLOCK   = 256;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = 0;
    static constexpr int  MOST    = 15;
    static constexpr bool MINIMA  = true;
    using Dots                    = NarrowDots;

    static void unpack(const uint8_t * block, Tile & tile, int) {
        unpack_halves(block, 0, tile.d[0]);
        unpack_minimum_factors(block, tile);
        unpack_scales_and_minima(block, 4, tile);
        for (int u = 0; u < 32; ++u) {
            const int  step  = u / 8 * 16 + u % 8;
            const Ints units = units_at(block, 16 + 4 * u);
            store(tile.values[step], low_halves(units));
            store(tile.values[step + 8], high_halves(units));
        }
    }
};

struct TilesQ5K {
    static constexpr int  BLOCK   = 256;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = 0;
    static constexpr int  MOST    = 31;
    static constexpr bool MINIMA  = true;
    using Dots                    = NarrowDots;

    // Values 64 * PART and on, whose fifth bits are two of each byte's bits.
    template <int PART>
    static void unpack_part(const uint8_t * block, Tile & tile) {
        for (int u = 0; u < 8; ++u) {
            const Ints bits  = units_at(block, 16 + 4 * u);
            const Ints units = units_at(block, 48 + 32 * PART + 4 * u);
            store(tile.values[16 * PART + u], either(low_halves(units), masked(moved_up<4 - 2 * PART>(bits), 16)));
            store(tile.values[16 * PART + u + 8], either(high_halves(units), masked(moved_up<3 - 2 * PART>(bits), 16)));
        }
    }

    static void unpack(const uint8_t * block, Tile & tile, int) {
        unpack_halves(block, 0, tile.d[0]);
        unpack_minimum_factors(block, tile);
        unpack_scales_and_minima(block, 4, tile);
        unpack_part<0>(block, tile);
        unpack_part<1>(block, tile);
        unpack_part<2>(block, tile);
        unpack_part<3>(block, tile);
    }
};

struct TilesQ6K {
    static constexpr int  BLOCK   = 256;
    static constexpr int  SEGMENT = 16;
    static constexpr int  PLUS    = 32;
    static constexpr bool MINIMA  = false;
    using Dots                    = NarrowDots;

    static void unpack(const uint8_t * block, Tile & tile, int) {
        for (int half = 0; half < 2; ++half) {
            for (int u = 0; u < 8; ++u) {
                const Ints first        = units_at(block, 64 * half + 4 * u);
                const Ints second       = units_at(block, 64 * half + 32 + 4 * u);
                const Ints bits         = units_at(block, 128 + 32 * half + 4 * u);
                uint8_t (*const to)[64] = tile.values + 32 * half + u;
                store(to[0], either(low_halves(first), up<4>(masked(bits, 3))));
                store(to[8], either(low_halves(second), up<2>(masked(bits, 12))));
                store(to[16], either(high_halves(first), masked(bits, 48)));
                store(to[24], either(high_halves(second), masked(down<2>(bits), 48)));
            }
        }
        for (int s = 0; s < 16; ++s) {
            store(tile.scales[s], NarrowDots::scales(load_signed_bytes(block + GROUP_ROWS * (192 + s))));
        }
        unpack_halves(block, 208, tile.d[0]);
    }
};

// Values are looked up; scales have 6 bits, 32 too much.
struct TilesIQ4XS {
    static constexpr int  BLOCK   = 256;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = WideDots::PLUS;
    static constexpr bool MINIMA  = false;
    using Dots                    = WideDots;

    static void unpack_scales(const uint8_t * block, Tile & tile) {
        const auto high = reinterpret_cast<const uint16_t *>(block + GROUP_ROWS * 2);
        const auto low  = block + GROUP_ROWS * 4;
        for (int s = 0; s < 8; ++s) {
            int32_t scales[GROUP_ROWS];
            for (int r = 0; r < GROUP_ROWS; ++r) {
                const int low_bits  = low[GROUP_ROWS * (s / 2) + r] >> (4 * (s % 2)) & 15;
                const int high_bits = high[r] >> (2 * s) & 3;
                scales[r]           = (low_bits | high_bits << 4) - 32;
            }
            store(tile.scales[s], Dots::scales(load(scales)));
        }
    }

    static void unpack(const uint8_t * block, Tile & tile, int) {
        constexpr int UNIT = 4 / Dots::STEP;  // steps
        unpack_halves(block, 0, tile.d[0]);
        unpack_scales(block, tile);
        for (int u = 0; u < 32; ++u) {
            const Ints units = units_at(block, 8 + 4 * u);
            const int  unit  = u / 4 * 8 + u % 4;
            Dots::store(tile.values + UNIT * unit, looked_up(low_halves(units), IQ4_VALUES));
            Dots::store(tile.values + UNIT * (unit + 4), looked_up(high_halves(units), IQ4_VALUES));
        }
    }
};

}  // namespace pyg::kernels
