// Types with 32 values in a block. The first of a byte's two halves belongs to the first 16 values, the second to the
// others.
#pragma once

#include "tiles.hpp"

namespace pyg::kernels {

// Where block `b` of a tile has its values.
template <class Dots>
uint8_t (*values_of(Tile & tile, int b))[64] {
    return tile.values + 32 / Dots::STEP * b;
}

struct TilesQ40 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = 8;
    static constexpr bool MINIMA  = false;
    using Dots                    = NarrowDots;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, 0, tile.d[b]);
        uint8_t (*const to)[64] = values_of<Dots>(tile, b);
        for (int u = 0; u < 4; ++u) {
            const Ints units = units_at(block, 2 + 4 * u);
            store(to[u], low_halves(units));
            store(to[u + 4], high_halves(units));
        }
    }
};

struct TilesQ41 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = 0;
    static constexpr int  MOST    = 15;
    static constexpr bool MINIMA  = true;
    using Dots                    = NarrowDots;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, 0, tile.d[b]);
        unpack_halves(block, 2, tile.m[b]);
        uint8_t (*const to)[64] = values_of<Dots>(tile, b);
        for (int u = 0; u < 4; ++u) {
            const Ints units = units_at(block, 4 + 4 * u);
            store(to[u], low_halves(units));
            store(to[u + 4], high_halves(units));
        }
    }
};

// Q5_0 and Q5_1: `bits` are the fifth ones, 32 of each row, and halves of bytes follow from byte `byte` of the block.
template <int U = 0>
void unpack_five_bits(const uint8_t * block, int byte, const Ints & bits, uint8_t (*to)[64]) {
    if constexpr (U < 4) {
        const Ints units = units_at(block, byte + 4 * U);
        store(to[U], either(low_halves(units), four_fifth_bits<4 * U>(bits)));
        store(to[U + 4], either(high_halves(units), four_fifth_bits<16 + 4 * U>(bits)));
        unpack_five_bits<U + 1>(block, byte, bits, to);
    }
}

struct TilesQ50 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = 16;
    static constexpr bool MINIMA  = false;
    using Dots                    = NarrowDots;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, 0, tile.d[b]);
        unpack_five_bits(block, 6, units_at(block, 2), values_of<Dots>(tile, b));
    }
};

struct TilesQ51 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = 0;
    static constexpr int  MOST    = 31;
    static constexpr bool MINIMA  = true;
    using Dots                    = NarrowDots;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, 0, tile.d[b]);
        unpack_halves(block, 2, tile.m[b]);
        unpack_five_bits(block, 8, units_at(block, 4), values_of<Dots>(tile, b));
    }
};

struct TilesQ80 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = WideDots::PLUS;
    static constexpr bool MINIMA  = false;
    using Dots                    = WideDots;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, 0, tile.d[b]);
        for (int u = 0; u < 8; ++u) {
            Dots::store(values_of<Dots>(tile, b) + 4 / Dots::STEP * u, units_at(block, 2 + 4 * u));
        }
    }
};

// Values are looked up.
struct TilesIQ4NL {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = WideDots::PLUS;
    static constexpr bool MINIMA  = false;
    using Dots                    = WideDots;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        constexpr int UNIT = 4 / Dots::STEP;  // steps
        unpack_halves(block, 0, tile.d[b]);
        uint8_t (*const to)[64] = values_of<Dots>(tile, b);
        for (int u = 0; u < 4; ++u) {
            const Ints units = units_at(block, 2 + 4 * u);
            Dots::store(to + UNIT * u, looked_up(low_halves(units), IQ4_VALUES));
            Dots::store(to + UNIT * (u + 4), looked_up(high_halves(units), IQ4_VALUES));
        }
    }
};

// Values are floats of 4 bits: twice their value is looked up, 12 too much. The factor is a power of 2.
struct TilesMXFP4 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  PLUS    = 12;
    static constexpr bool MINIMA  = false;
    using Dots                    = NarrowDots;

    static constexpr int8_t VALUES[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

    // Half of 2^(exponent - 127): of the two smallest, a number below the normal ones.
    static float factor(uint32_t exponent) {
        const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
        float          value;
        std::memcpy(&value, &bits, sizeof(value));
        return value;
    }

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        for (int r = 0; r < GROUP_ROWS; ++r) {
            tile.d[b][r] = factor(block[r]);
        }
        uint8_t (*const to)[64] = values_of<Dots>(tile, b);
        for (int u = 0; u < 4; ++u) {
            const Ints units = units_at(block, 1 + 4 * u);
            store(to[u], looked_up(low_halves(units), VALUES));
            store(to[u + 4], looked_up(high_halves(units), VALUES));
        }
    }
};

}  // namespace pyg::kernels
