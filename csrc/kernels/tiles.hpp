// One struct per type of weights: how a group's block (layout.hpp) becomes a tile of plain integers.
//
// A tile holds 256 values of each of 16 rows, or fewer at the end of a row:
//     values   [plane][k / 4][16 rows][4]  bytes without sign, small enough that maddubs' sums of several fit 16 bits;
//                                    values of 8 bits are two planes of 4, the second worth 16 times as much
//     scales   [segment][16 rows]     the integer factor of a segment of values, twice in 32 bits as maddubs' sums need
//     it offsets  [segment / 2][16 rows] what each segment's values have too much, times its scale: two in 32 bits d, m
//     [block][16 rows]      float factors of the sums, and of the offsets
#pragma once

#include "ggml.h"
#include "layout.hpp"

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

inline void unpack_halves(const uint8_t * halves, float * floats) {
    ggml_fp16_t values[GROUP_ROWS];
    std::memcpy(values, halves, sizeof(values));
    for (int r = 0; r < GROUP_ROWS; ++r) {
        floats[r] = GGML_CPU_FP16_TO_FP32(values[r]);
    }
}

// The low and the high half of each byte of 16 rows' units.
inline void unpack_nibbles(const uint8_t * units, uint8_t * low, uint8_t * high) {
    for (int i = 0; i < GROUP_ROWS * 4; ++i) {
        low[i]  = units[i] & 15;
        high[i] = units[i] >> 4;
    }
}

// ORs bit `bit` of each of `bits`' bytes into `values` as their bit 4.
inline void add_fifth_bit(const uint8_t * bits, int bit, uint8_t * values) {
    const auto mask = static_cast<uint8_t>(1 << bit);
    for (int i = 0; i < GROUP_ROWS * 4; ++i) {
        values[i] |= (bits[i] & mask) ? 16 : 0;
    }
}

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
            const int step = u / 8 * 16 + u % 8;
            unpack_nibbles(block + 256 + 64 * u, tile.values[0][step], tile.values[0][step + 8]);
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
            const int             step = u / 8 * 16 + u % 8;
            const uint8_t * const bits = block + 256 + 64 * (u % 8);
            unpack_nibbles(block + 768 + 64 * u, tile.values[0][step], tile.values[0][step + 8]);
            add_fifth_bit(bits, u / 8 * 2, tile.values[0][step]);
            add_fifth_bit(bits, u / 8 * 2 + 1, tile.values[0][step + 8]);
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
                const uint8_t * const first  = block + 64 * (16 * half + u);
                const uint8_t * const second = first + 64 * 8;
                const uint8_t * const bits   = block + 64 * (32 + 8 * half + u);
                uint8_t (*const to)[64]      = tile.values[0] + 32 * half + u;
                for (int i = 0; i < GROUP_ROWS * 4; ++i) {
                    to[0][i]  = static_cast<uint8_t>((first[i] & 15) | (bits[i] & 3) << 4);
                    to[8][i]  = static_cast<uint8_t>((second[i] & 15) | (bits[i] & 12) << 2);
                    to[16][i] = static_cast<uint8_t>(first[i] >> 4 | (bits[i] & 48));
                    to[24][i] = static_cast<uint8_t>(second[i] >> 4 | (bits[i] & 192) >> 2);
                }
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
            unpack_nibbles(block + 32 + 64 * u, tile.values[0][8 * b + u], tile.values[0][8 * b + u + 4]);
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

    // Four bits become bit 4 of four bytes.
    static uint32_t spread(uint32_t bits) { return ((bits & 15) * 0x00204081u & 0x01010101u) << 4; }

    static void unpack(const uint8_t * block, Tile & tile, int b) {
        unpack_halves(block, tile.d[b]);
        uint32_t bits[GROUP_ROWS];
        std::memcpy(bits, block + 32, sizeof(bits));
        for (int u = 0; u < 4; ++u) {
            uint32_t units[GROUP_ROWS];
            uint32_t low[GROUP_ROWS];
            uint32_t high[GROUP_ROWS];
            std::memcpy(units, block + 96 + 64 * u, sizeof(units));
            for (int r = 0; r < GROUP_ROWS; ++r) {
                low[r]  = (units[r] & 0x0f0f0f0fu) | spread(bits[r] >> (4 * u));
                high[r] = (units[r] >> 4 & 0x0f0f0f0fu) | spread(bits[r] >> (16 + 4 * u));
            }
            std::memcpy(tile.values[0][8 * b + u], low, sizeof(low));
            std::memcpy(tile.values[0][8 * b + u + 4], high, sizeof(high));
        }
    }
};

// Values of 8 bits with a sign, 128 added, in two planes.
inline void unpack_bytes(const uint8_t * units, uint8_t * low, uint8_t * high) {
    for (int i = 0; i < GROUP_ROWS * 4; ++i) {
        const auto value = static_cast<uint8_t>(units[i] ^ 128);
        low[i]           = value & 15;
        high[i]          = value >> 4;
    }
}

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
            unpack_bytes(block + 32 + 64 * u, tile.values[0][8 * b + u], tile.values[1][8 * b + u]);
        }
    }
};

}  // namespace pyg::kernels
