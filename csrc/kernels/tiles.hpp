// One struct per type of weights: how a group's block (layout.hpp) becomes a tile of plain integers.
//
// A tile holds 256 values of each of 16 rows, or fewer at the end of a row:
//
// values [plane][k / 4][16 rows][4]: bytes without sign, so small that the sums of several of maddubs' products fit 16
// bits. Values of 8 bits are two planes of 4, the second worth 16 times as much.
//
// scales [segment][16 rows]: the integer factor of a segment's values, twice in 32 bits, as the sums need it.
//
// offsets [segment / 2][16 rows]: what each segment's values have too much, times its scale; two in 32 bits.
//
// d, m [block][16 rows]: the float factors of the sums, and of the offsets.
#pragma once

#include "ggml.h"
#include "layout.hpp"
#include "vector_avx2.hpp"

#include <cstdint>
#include <cstring>

namespace pyg::kernels {

constexpr int TILE_K = 256;

struct alignas(64) Tile {
    uint8_t  values[2][TILE_K / 4][GROUP_ROWS * 4];
    uint32_t scales[16][GROUP_ROWS];
    uint32_t offsets[8][GROUP_ROWS];
    float    d[8][GROUP_ROWS];
    float    m[8][GROUP_ROWS];
};

// Two signed numbers of 16 bits in one of 32.
inline uint32_t pair(int low, int high) {
    return static_cast<uint16_t>(low) | static_cast<uint32_t>(static_cast<uint16_t>(high)) << 16;
}

inline void unpack_halves(const uint8_t * halves, float * floats) { store(floats, load_half_floats(halves)); }

// The low and the high half of each byte of 16 rows' units.
inline Ints low_halves(const Ints & units) { return masked(units, 15); }
inline Ints high_halves(const Ints & units) { return masked(down<4>(units), 15); }

// Scales and minima of Q4_K and Q5_K: 6 bits each, eight of both in 12 bytes.
inline void unpack_scales_and_minima(const uint8_t * bytes, Tile & tile) {
    uint8_t scale[8][GROUP_ROWS];
    uint8_t minimum[8][GROUP_ROWS];
    for (int j = 0; j < 4; ++j) {
        const uint8_t * const a = bytes + GROUP_ROWS * j;
        const uint8_t * const b = bytes + GROUP_ROWS * (j + 4);
        const uint8_t * const c = bytes + GROUP_ROWS * (j + 8);
        for (int r = 0; r < GROUP_ROWS; ++r) {
            scale[j][r]       = a[r] & 63;
            minimum[j][r]     = b[r] & 63;
            scale[j + 4][r]   = static_cast<uint8_t>((c[r] & 15) | (a[r] >> 6) << 4);
            minimum[j + 4][r] = static_cast<uint8_t>(c[r] >> 4 | (b[r] >> 6) << 4);
        }
    }
    for (int s = 0; s < 8; ++s) {
        for (int r = 0; r < GROUP_ROWS; ++r) {
            tile.scales[s][r] = scale[s][r] * 0x10001u;
        }
    }
    for (int p = 0; p < 4; ++p) {
        for (int r = 0; r < GROUP_ROWS; ++r) {
            tile.offsets[p][r] = minimum[2 * p][r] | static_cast<uint32_t>(minimum[2 * p + 1][r]) << 16;
        }
    }
}

struct TilesQ4K {
    static constexpr int  BLOCK   = 256;  // values that share float factors
    static constexpr int  SEGMENT = 32;   // values that share an integer scale
    static constexpr int  RUN     = 8;    // steps of 4 values whose sums of maddubs fit 16 bits: 8 * 2 * 15 * 127
    static constexpr int  PLANES  = 1;
    static constexpr int  PLUS    = 0;     // what every value has too much, where that is a constant
    static constexpr bool MINIMA  = true;  // offsets are sums of their own, times m

    static void unpack(const uint8_t * block, Tile & tile, int) {
        unpack_halves(block, tile.d[0]);
        unpack_halves(block + 32, tile.m[0]);
        unpack_scales_and_minima(block + 64, tile);
        for (int u = 0; u < 32; ++u) {
            const int  step  = u / 8 * 16 + u % 8;
            const Ints units = load_unaligned(block + 256 + 64 * u);
            store(tile.values[0][step], low_halves(units));
            store(tile.values[0][step + 8], high_halves(units));
        }
    }
};

struct TilesQ5K {
    static constexpr int  BLOCK   = 256;
    static constexpr int  SEGMENT = 32;
    static constexpr int  RUN     = 4;
    static constexpr int  PLANES  = 1;
    static constexpr int  PLUS    = 0;
    static constexpr bool MINIMA  = true;

    static void unpack(const uint8_t * block, Tile & tile, int) {
        unpack_halves(block, tile.d[0]);
        unpack_halves(block + 32, tile.m[0]);
        unpack_scales_and_minima(block + 64, tile);
        for (int u = 0; u < 32; ++u) {
            const int  step  = u / 8 * 16 + u % 8;
            const Ints bits  = load_unaligned(block + 256 + 64 * (u % 8));
            const Ints units = load_unaligned(block + 768 + 64 * u);
            store(tile.values[0][step], either(low_halves(units), sixteen_where(bits, u / 8 * 2)));
            store(tile.values[0][step + 8], either(high_halves(units), sixteen_where(bits, u / 8 * 2 + 1)));
        }
    }
};

struct TilesQ6K {
    static constexpr int  BLOCK   = 256;
    static constexpr int  SEGMENT = 16;
    static constexpr int  RUN     = 2;
    static constexpr int  PLANES  = 1;
    static constexpr int  PLUS    = 32;
    static constexpr bool MINIMA  = false;

    static void unpack(const uint8_t * block, Tile & tile, int) {
        for (int half = 0; half < 2; ++half) {
            for (int u = 0; u < 8; ++u) {
                const Ints first        = load_unaligned(block + 64 * (16 * half + u));
                const Ints second       = load_unaligned(block + 64 * (16 * half + u + 8));
                const Ints bits         = load_unaligned(block + 64 * (32 + 8 * half + u));
                uint8_t (*const to)[64] = tile.values[0] + 32 * half + u;
                store(to[0], either(low_halves(first), up<4>(masked(bits, 3))));
                store(to[8], either(low_halves(second), up<2>(masked(bits, 12))));
                store(to[16], either(high_halves(first), masked(bits, 48)));
                store(to[24], either(high_halves(second), masked(down<2>(bits), 48)));
            }
        }
        const auto scales = reinterpret_cast<const int8_t *>(block + 64 * 48);
        for (int s = 0; s < 16; ++s) {
            for (int r = 0; r < GROUP_ROWS; ++r) {
                const int scale   = scales[GROUP_ROWS * s + r];
                tile.scales[s][r] = pair(scale, scale);
            }
        }
        for (int p = 0; p < 8; ++p) {
            for (int r = 0; r < GROUP_ROWS; ++r) {
                tile.offsets[p][r] =
                    pair(PLUS * scales[GROUP_ROWS * 2 * p + r], PLUS * scales[GROUP_ROWS * (2 * p + 1) + r]);
            }
        }
        unpack_halves(block + 16 * 208, tile.d[0]);
    }
};

struct TilesQ40 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  RUN     = 8;
    static constexpr int  PLANES  = 1;
    static constexpr int  PLUS    = 8;
    static constexpr bool MINIMA  = false;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, tile.d[b]);
        for (int u = 0; u < 4; ++u) {
            const Ints units = load_unaligned(block + 32 + 64 * u);
            store(tile.values[0][8 * b + u], low_halves(units));
            store(tile.values[0][8 * b + u + 4], high_halves(units));
        }
    }
};

struct TilesQ50 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  RUN     = 4;
    static constexpr int  PLANES  = 1;
    static constexpr int  PLUS    = 16;
    static constexpr bool MINIMA  = false;

    template <int U>
    static void unpack_unit(const uint8_t * block, const Ints & bits, uint8_t (*to)[64]) {
        const Ints units = load_unaligned(block + 96 + 64 * U);
        store(to[U], either(low_halves(units), four_fifth_bits<4 * U>(bits)));
        store(to[U + 4], either(high_halves(units), four_fifth_bits<16 + 4 * U>(bits)));
    }

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, tile.d[b]);
        const Ints bits         = load_unaligned(block + 32);
        uint8_t (*const to)[64] = tile.values[0] + 8 * b;
        unpack_unit<0>(block, bits, to);
        unpack_unit<1>(block, bits, to);
        unpack_unit<2>(block, bits, to);
        unpack_unit<3>(block, bits, to);
    }
};

// Values of 8 bits with a sign: 128 is added, and each becomes two of 4 bits.
struct TilesQ80 {
    static constexpr int  BLOCK   = 32;
    static constexpr int  SEGMENT = 32;
    static constexpr int  RUN     = 8;
    static constexpr int  PLANES  = 2;
    static constexpr int  PLUS    = 128;
    static constexpr bool MINIMA  = false;

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, tile.d[b]);
        for (int u = 0; u < 8; ++u) {
            const Ints values = add_128(load_unaligned(block + 32 + 64 * u));
            store(tile.values[0][8 * b + u], low_halves(values));
            store(tile.values[1][8 * b + u], high_halves(values));
        }
    }
};

}  // namespace pyg::kernels
