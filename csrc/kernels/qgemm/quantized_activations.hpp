// Activations quantised to int8, row by row, in the workspace of a node.
#pragma once

#include "kernels/qgemm/tile.hpp"

namespace pyg::kernels {

// 256 quantised values of a row of activations, or fewer at its end: the counterpart of a tile. A row of activations is
// a column of the product. A block shares a float scale, and sub-blocks are summed as integers.
template <class Activation>
struct alignas(64) QuantizedColumn {
    Activation q[TILE_K];         // round(x / d), -127 to 127
    float      d[8];              // [block]   largest magnitude of the block's values / 127
    uint32_t   initial_sums[16];  // [sub-block] initial accumulators of a sub-block
    int16_t    sums[16];          // [sub-block] sum of the sub-block's q, for weights with a minimum
};

template <class Type>
using QuantizedColumnFor = QuantizedColumn<typename Type::Dots::Activation>;

// Padding after the last column's tile: some kernels read 16 columns where there are fewer.
constexpr int PADDING_COLUMNS = 15;

// Quantise `n` values and return their scale: NaN or infinite if one of the values is, so that all results are, too.
// Magnitudes are compared as integers, among which NaN is the largest.
template <class Dots>
float quantize_block(const float * x, int n, typename Dots::Activation * q) {
    constexpr float SMALLEST = 1e-36F;  // below it, 127 / x would be infinite

    Ints most = zero();
    for (int i = 0; i < n; i += 16) {
        most = max_of(most, magnitude_bits(Floats::load(x + i)));
    }
    const int32_t bits = reduce_max(most);
    float         magnitude;
    std::memcpy(&magnitude, &bits, sizeof(magnitude));
    const Floats inverse = Floats::set1(magnitude > SMALLEST ? 127 / magnitude : 0.0F);
    for (int i = 0; i < n; i += 16) {
        Dots::store(q + i, to_ints(Floats::load(x + i) * inverse));
    }
    return magnitude / 127;
}

template <class Type>
void quantize_column(const float * x, int n_values, QuantizedColumnFor<Type> & column) {
    using Dots = typename Type::Dots;
    for (int b = 0; b < n_values / Type::BLOCK; ++b) {
        column.d[b] = quantize_block<Dots>(x + b * Type::BLOCK, Type::BLOCK, column.q + b * Type::BLOCK);
    }
    if constexpr (Type::ZERO_POINT != 0 || Type::HAS_MIN) {
        for (int s = 0; s < n_values / Type::SUB_BLOCK; ++s) {
            int low = 0, high = 0;
            for (int i = 0; i < Type::SUB_BLOCK; i += 16) {
                const uint32_t sums = sums_of_pairs(column.q + s * Type::SUB_BLOCK + i);
                low += static_cast<int16_t>(sums);
                high += static_cast<int16_t>(sums >> 16);
            }
            if constexpr (Type::HAS_MIN) {
                column.sums[s] = static_cast<int16_t>(low + high);
            } else {
                column.initial_sums[s] = Dots::start(low, high, Type::ZERO_POINT);
            }
        }
    }
}

}  // namespace pyg::kernels
