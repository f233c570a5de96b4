// Packed layout of weights: 16 interleaved rows, so that each vector lane belongs to one row.
//
// Rows are taken in groups of 16. Within a group, blocks follow each other as in a row; within a block, the fields of
// the type's struct (ggml-common.h), or parts of them, come in the order in which kernels read them. Each is cut
// into units of 1, 2 or 4 bytes, and each unit is followed by the same unit of the other 15 rows. Packing does not
// change the size.
#pragma once

#include "ggml.h"

#include <cstddef>
#include <cstdint>

namespace pyg::kernels {

constexpr int GROUP_ROWS = 16;

// Consecutive bytes of a block.
struct Field {
    int offset;  // in the type's struct
    int n_units;
    int unit_bytes;
};

// Fields of a type's block in packed order, ended by one without units; null for types without a packed layout.
const Field * packed_fields(ggml_type type);

// Pack a matrix, or a stack of matrices with a multiple of 16 rows each. An incomplete last group takes the bytes of 16
// rows; the missing ones are copies of the last.
void pack_rows(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * rows, void * tiles);

// Unpack a packed matrix.
void unpack_rows(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * tiles, void * rows);

}  // namespace pyg::kernels
