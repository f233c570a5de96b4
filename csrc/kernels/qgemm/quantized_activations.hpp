// The activations of a step as products take them: each row of floats as integers, in workspace.
#pragma once

#include "kernels/qgemm/tile.hpp"

namespace pyg::kernels {

// What meets a tile of weights: 256 values of a row of activations, or fewer at its end. A row is a column of the
// product. As in tiles, a block's values share a float factor, and segments are summed as integers.
template <class Activation>
struct alignas(64) ColumnTile {
    Activation q[TILE_K];   // round(x / d), -127 to 127
    float      d[8];        // [block]   largest magnitude of the block's values / 127
    uint32_t   starts[16];  // [segment] what the sums of a segment begin with
    int16_t    sums[16];    // [segment] of the segment's q: for weights with a minimum
};

template <class Type>
using ColumnTileFor = ColumnTile<typename Type::Dots::Activation>;

// Tiles that there have to be behind a product's last one: some kernels take 16 columns where there are fewer.
constexpr int SPARE_COLUMNS = 15;

// Rounds `n` values, and returns their factor: not a number, or infinite, if one of the values is, so that all results
// are, too. Magnitudes are compared as integers, among which what is not a number is the largest.
template <class Dots>
float round_block(const float * x, int n, typename Dots::Activation * q) {
    constexpr float SMALLEST = 1e-36F;  // below it, 127 / x would be infinite

    Ints most = zero();
    for (int i = 0; i < n; i += 16) {
        most = larger(most, magnitude_bits(load_floats(x + i)));
    }
    const int32_t bits = largest(most);
    float         magnitude;
    std::memcpy(&magnitude, &bits, sizeof(magnitude));
    const Floats inverse = everywhere(magnitude > SMALLEST ? 127 / magnitude : 0.0F);
    for (int i = 0; i < n; i += 16) {
        Dots::store(q + i, rounded(multiply(load_floats(x + i), inverse)));
    }
    return magnitude / 127;
}

template <class Type>
void fill_column(const float * x, int n_values, ColumnTileFor<Type> & column) {
    using Dots = typename Type::Dots;
    for (int b = 0; b < n_values / Type::BLOCK; ++b) {
        column.d[b] = round_block<Dots>(x + b * Type::BLOCK, Type::BLOCK, column.q + b * Type::BLOCK);
    }
    if constexpr (Type::PLUS != 0 || Type::MINIMA) {
        for (int s = 0; s < n_values / Type::SEGMENT; ++s) {
            int low = 0, high = 0;
            for (int i = 0; i < Type::SEGMENT; i += 16) {
                const uint32_t sums = sums_of_pairs(column.q + s * Type::SEGMENT + i);
                low += static_cast<int16_t>(sums);
                high += static_cast<int16_t>(sums >> 16);
            }
            if constexpr (Type::MINIMA) {
                column.sums[s] = static_cast<int16_t>(low + high);
            } else {
                column.starts[s] = Dots::start(low, high, Type::PLUS);
            }
        }
    }
}

}  // namespace pyg::kernels
