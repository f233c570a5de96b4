// The activations of a step as products take them: each row of floats as bytes with a sign, in workspace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyg::kernels {

// A row of activations, which is a column of the product.
struct Column {
    const int8_t *  q;     // [k]           round(x / d)
    const float *   d;     // [k / block]   largest magnitude of the block's values / 127
    const int16_t * sums;  // [k / segment] of the segment's q
};

// Bytes that a row of `k` values takes.
size_t column_bytes(int64_t k);

// The row whose bytes lie, or are to lie, at `bytes`.
Column column_at(const char * bytes, int64_t k);

// Rounds values [begin, end) of a row, which are whole blocks.
void fill_column(const float * x, int64_t begin, int64_t end, int block, int segment, const Column & column);

}  // namespace pyg::kernels
