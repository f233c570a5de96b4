// The activations of a step as products take them: each row of floats as integers, in workspace.
#pragma once

#include "vector.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pyg::kernels {

// A row of activations, which is a column of the product. A block's values share a float factor, a segment's an integer
// one (tiles.hpp).
template <class Activation>
struct Column {
    Activation * q;       // [k]           round(x / d), -127 to 127
    float *      d;       // [k / block]   largest magnitude of the block's values / 127
    uint32_t *   starts;  // [k / segment] what the sums of a segment begin with
    int16_t *    sums;    // [k / segment] of the segment's q: for weights with a minimum
};

constexpr size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes that a row of `k` values takes.
template <class Activation>
size_t column_bytes(int64_t k) {
    return aligned(k * sizeof(Activation)) + aligned(k / 32 * sizeof(float)) + aligned(k / 16 * sizeof(uint32_t)) +
           aligned(k / 16 * sizeof(int16_t));
}

// The row whose bytes lie, or are to lie, at `bytes`.
template <class Activation>
Column<Activation> column_at(char * bytes, int64_t k) {
    char * const d      = bytes + aligned(k * sizeof(Activation));
    char * const starts = d + aligned(k / 32 * sizeof(float));
    char * const sums   = starts + aligned(k / 16 * sizeof(uint32_t));
    return {reinterpret_cast<Activation *>(bytes), reinterpret_cast<float *>(d), reinterpret_cast<uint32_t *>(starts),
            reinterpret_cast<int16_t *>(sums)};
}

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

// Rounds values [begin, end) of a row, which are whole blocks.
template <class Type>
void fill_column(const float * x, int64_t begin, int64_t end, const Column<typename Type::Dots::Activation> & column) {
    using Dots = typename Type::Dots;
    for (int64_t first = begin; first < end; first += Type::BLOCK) {
        column.d[first / Type::BLOCK] = round_block<Dots>(x + first, Type::BLOCK, column.q + first);
    }
    if constexpr (Type::PLUS != 0 || Type::MINIMA) {
        for (int64_t first = begin; first < end; first += Type::SEGMENT) {
            int low = 0, high = 0;
            for (int i = 0; i < Type::SEGMENT; i += 16) {
                const uint32_t sums = sums_of_pairs(column.q + first + i);
                low += static_cast<int16_t>(sums);
                high += static_cast<int16_t>(sums >> 16);
            }
            if constexpr (Type::MINIMA) {
                column.sums[first / Type::SEGMENT] = static_cast<int16_t>(low + high);
            } else {
                column.starts[first / Type::SEGMENT] = Dots::start(low, high, Type::PLUS);
            }
        }
    }
}

}  // namespace pyg::kernels
