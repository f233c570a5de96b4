// How weights lie in tiles: 16 rows side by side, so that each lane of a vector belongs to a row.
//
// Rows are taken in groups of 16. Within a group, blocks follow each other as in a row; within a block, the fields of
// the type's struct (ggml-common.h), or parts of them, come in the order in which kernels read them, since the memory
// is fastest then. Each is cut into units of 1, 2 or 4 bytes, and each unit is followed by the same unit of the other
// 15 rows. The whole takes exactly as many bytes as before.
#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace pyg::kernels {

constexpr int GROUP_ROWS = 16;

// Bytes of a block that stay together.
struct Field {
    int offset;  // in the type's struct
    int n_units;
    int unit_bytes;
};

// The fields of a type's block in the order in which they are laid out, ended by one of no units; null for types that
// are not laid out in tiles.
const Field * fields_of(ggml_type type);

// Lays out a whole matrix, or a stack of matrices with a multiple of 16 rows each. Where the last group lacks rows,
// it still takes the bytes of 16, and the missing ones are copies of the last.
void lay_out(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * rows, void * tiles);

// The same back.
void take_back(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * tiles, void * rows);

}  // namespace pyg::kernels
