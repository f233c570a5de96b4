// Work item of a product: some rows of weights times some columns of activations.
#pragma once

#include <cstdint>

namespace pyg::kernels {

constexpr int64_t ITEM_ROWS    = 24;  // of weights, or twice as many; all blocks of float_micro_kernel.hpp divide it
constexpr int64_t ITEM_COLUMNS = 32;  // rows of activations

// Rows of one matrix of weights, and some of its columns.
struct WorkItem {
    const char * weights;  // the first row
    int64_t      n_rows;
    int64_t      n_columns;
    const char * columns[ITEM_COLUMNS];
    float *      results[ITEM_COLUMNS];  // of the first row
};

}  // namespace pyg::kernels
