// A piece of work of a product whose weights stay as they are in the file.
#pragma once

#include <cstdint>

namespace pyg::kernels {

constexpr int64_t PIECE_ROWS    = 24;  // of weights, or twice as many; all blocks of float_micro_kernel.hpp divide it
constexpr int64_t PIECE_COLUMNS = 32;  // rows of activations

// Rows of one matrix of weights, and some of the columns that meet this matrix.
struct Piece {
    const char * weights;  // the first row
    int64_t      n_rows;
    int64_t      n_columns;
    const char * columns[PIECE_COLUMNS];
    float *      results[PIECE_COLUMNS];  // of the first row
};

}  // namespace pyg::kernels
