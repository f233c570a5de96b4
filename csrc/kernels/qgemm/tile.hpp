// What a tile is: 256 values of each of 16 rows, or fewer at the end of a row, as plain integers.
//
// Every type of weights has a struct (block_formats.hpp, superblock_formats.hpp) with these constants:
//
// Struct   of a row's block (ggml-common.h)
// BLOCK    values that share float factors
// SEGMENT  values that share an integer scale; BLOCK for types without such scales
// PARTS    in which a block's values are unpacked, several whole segments each, each part in UNITS
// Dots     how products are added up, and so what values a tile has: NarrowDots or WideDots of the vector header
// PLUS     what every value in the tile has too much
// MINIMA   whether each segment has, beside that, a minimum of its own
// MOST     with minima: the largest value in the tile
// SCALE_BITS  with integer scales: how many bits these have, their sign among them; without one if there are minima
// LARGE    whether a factor's product with an integer sum may be more than a float holds; factors are powers of 2 then
//
// and these functions of a group's block (pack.hpp):
//
// factors(block, factors, b)  writes what its values are to be multiplied with, as block `b` of a tile
// unit<U>(block, part, sums)  calls sums.add<I, STEP>(values) for some steps of segments segment_of(part, I)
// segment_of(part, i)
//
// Parts and segments have 64 bits, as addresses do: compilers then add constants to them where they are used.
#pragma once

#include "ggml.h"
#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "kernels/qgemm/pack.hpp"
#include "kernels/simd/vector.hpp"

namespace pyg::kernels {

constexpr int TILE_K = 256;

struct alignas(64) Factors {
    uint32_t scales[16][GROUP_ROWS];  // [segment][16 rows], as Dots::scales makes them
    uint32_t offsets[4][GROUP_ROWS];  // [segment / 2][16 rows]: minima of two segments, in 16 bits each
    float    d[8][GROUP_ROWS];        // [block][16 rows]: the factor of the integer sums
    float    m[8][GROUP_ROWS];        // [block][16 rows]: the factor of the minima
};

struct alignas(64) Tile {
    uint8_t values[TILE_K / 2][64];  // [k / STEP][16 rows][STEP values]
    Factors factors;
};

// Bytes of a group's block.
template <class Type>
constexpr size_t block_bytes() {
    return GROUP_ROWS * sizeof(typename Type::Struct);
}

// Asks the memory for weights that come later, a share for each part: if it were for a whole block at once, loads would
// have to wait behind it. The loop also keeps compilers from mixing parts, for which they lack registers.
template <class Type>
PYG_INLINE inline void ask_ahead([[maybe_unused]] const uint8_t * block, [[maybe_unused]] int64_t part) {
#if defined(__GNUC__)
    constexpr size_t AHEAD = 10 << 10;
    constexpr size_t LINE  = 64;
    constexpr size_t LINES = block_bytes<Type>() / LINE / Type::PARTS + 1;
#    pragma GCC      unroll 1
    for (size_t i = 0; i < LINES; ++i) {  // into the second cache: the first can wait for few lines
        __builtin_prefetch(block + AHEAD + (part * LINES + i) * LINE, 0, 2);
    }
#endif
}

// Units of 16 rows, which need not be aligned.
inline Ints units_at(const uint8_t * block, int64_t byte) { return load(block + GROUP_ROWS * byte); }

inline void unpack_halves(const uint8_t * block, int byte, float * floats) {
    store(floats, load_half_floats(block + GROUP_ROWS * byte));
}

// The low and the high half of each byte.
inline Ints low_halves(const Ints & units) { return masked(units, 15); }
inline Ints high_halves(const Ints & units) { return masked(down<4>(units), 15); }

// What the 4 bits of IQ4_NL and IQ4_XS stand for.
constexpr int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace pyg::kernels
