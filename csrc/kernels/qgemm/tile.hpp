// Tiles: 256 values of each of 16 rows, or fewer at the end of a row, as plain integers.
//
// Each weight type (types.def) has a format, a struct with these constants (block_formats.hpp, superblock_formats.hpp):
//
// Struct      the quantised block of a row (ggml-common.h)
// BLOCK       values that share a float scale
// SUB_BLOCK   values that share an integer scale; BLOCK for types without sub-block scales
// PARTS       steps in which a block is unpacked, each of several whole sub-blocks and LOADS_PER_PART loads
// Dots        how products are accumulated: NarrowDots (int8 activations) or WideDots (8-bit weights)
// ZERO_POINT  offset of every value in the tile
// HAS_MIN     whether each sub-block also has a minimum
// MAX_VALUE   with HAS_MIN: the largest value in the tile
// SCALE_BITS  bits of a sub-block scale: signed, or unsigned with HAS_MIN
// EXPONENT_SCALE  the scale is a power of two, and its product with an integer sum may overflow a float
//
// and these functions of a packed block (pack.hpp):
//
// unpack_scales(block, scales, b)  writes the scales and minima of block `b` of a tile
// unpack<U>(block, part, sums)     calls sums.add<I, STEP>(values) for some steps of sub-blocks sub_block_of(part, I)
// sub_block_of(part, i)            index of sub-block `i` of a part
//
// Part and sub-block indices have 64 bits, like addresses, so that compilers fold constants into the addressing.
#pragma once

#include "ggml.h"
#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "kernels/qgemm/pack.hpp"
#include "kernels/simd/vector.hpp"

namespace pyg::kernels {

constexpr int TILE_K = 256;

// Constants of most formats.
struct Format {
    static constexpr int  ZERO_POINT     = 0;
    static constexpr bool HAS_MIN        = false;
    static constexpr bool EXPONENT_SCALE = false;
    using Dots                           = NarrowDots;
};

struct alignas(64) BlockScales {
    uint32_t sub_scales[16][GROUP_ROWS];  // [sub-block][16 rows], in the form of Dots::scales
    uint32_t sub_mins[4][GROUP_ROWS];     // [sub-block / 2][16 rows]: minima of two sub-blocks, in 16 bits each
    float    d[8][GROUP_ROWS];            // [block][16 rows]: scale of the integer sums
    float    m[8][GROUP_ROWS];            // [block][16 rows]: scale of the minima
};

struct alignas(64) Tile {
    uint8_t     values[TILE_K / 2][64];  // [k / STEP][16 rows][STEP values]
    BlockScales scales;
};

// Bytes of a group's block.
template <class Type>
constexpr size_t block_bytes() {
    return GROUP_ROWS * sizeof(typename Type::Struct);
}

// Prefetch the next weights, some lines per part: a whole block at once would delay the loads behind it. The loop also
// keeps compilers from interleaving parts, for which they lack registers.
template <class Type>
PYG_INLINE inline void prefetch_weights([[maybe_unused]] const uint8_t * block, [[maybe_unused]] int64_t part) {
#if defined(__GNUC__)
    constexpr size_t AHEAD = 10 << 10;
    constexpr size_t LINE  = 64;
    constexpr size_t LINES = block_bytes<Type>() / LINE / Type::PARTS + 1;
#    pragma GCC      unroll 1
    for (size_t i = 0; i < LINES; ++i) {  // into L2: L1 has few line fill buffers
        __builtin_prefetch(block + AHEAD + (part * LINES + i) * LINE, 0, 2);
    }
#endif
}

// Unaligned units of 16 rows.
inline Ints units_at(const uint8_t * block, int64_t byte) { return Ints::load_bits(block + GROUP_ROWS * byte); }

inline Floats halves_at(const uint8_t * block, int byte) {
    return Floats::load(reinterpret_cast<const ggml_fp16_t *>(block + GROUP_ROWS * byte));
}

// The low and the high half of each byte.
inline Ints low_halves(const Ints & units) { return and_mask(units, 15); }
inline Ints high_halves(const Ints & units) { return and_mask(shift_right<4>(units), 15); }

// Values of the 4-bit codes of IQ4_NL and IQ4_XS.
constexpr int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Add unit U of the four-bit codes, and unit U + 4 in their high halves, to a sub-block's sums.
template <int U, class Sums>
PYG_INLINE inline void add_iq4_values(const Ints & units, Sums & sums) {
    WideDots::add_bytes<0, U>(sums, table_lookup(low_halves(units), IQ4_VALUES));
    WideDots::add_bytes<0, U + 4>(sums, table_lookup(high_halves(units), IQ4_VALUES));
}

}  // namespace pyg::kernels
