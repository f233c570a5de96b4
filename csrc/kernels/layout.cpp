#include "layout.hpp"

#include <cstring>

namespace pyg::kernels {

namespace {

// Calls copy(offset in the row's block, offset in the group's block, bytes) for each unit of row `r`.
template <class Copy>
void for_each_unit(const Field * field, int r, Copy copy) {
    size_t offset = 0;
    for (; field->n_units > 0; ++field) {
        const size_t unit = field->unit_bytes;
        for (int i = 0; i < field->n_units; ++i, offset += unit) {
            copy(offset, GROUP_ROWS * offset + r * unit, unit);
        }
    }
}

// Calls copy(offset among the rows, offset among the tiles, bytes) for each unit of the matrix.
template <class Copy>
void for_each(ggml_type type, int64_t n_blocks, int64_t n_rows, Copy copy) {
    const Field * const fields = fields_of(type);
    const size_t        block  = ggml_type_size(type);
    for (int64_t row = 0; row < n_rows; ++row) {
        const int     r     = row % GROUP_ROWS;
        const int64_t group = row - r;
        for (int64_t b = 0; b < n_blocks; ++b) {
            const size_t in_rows  = (row * n_blocks + b) * block;
            const size_t in_tiles = (group * n_blocks + b * GROUP_ROWS) * block;
            for_each_unit(fields, r, [&](size_t in_block, size_t in_group, size_t bytes) {
                copy(in_rows + in_block, in_tiles + in_group, bytes);
            });
        }
    }
}

}  // namespace

const Field * fields_of(ggml_type type) {
    static constexpr Field Q4_0[]   = {{1, 2}, {4, 4}, {}};
    static constexpr Field Q4_1[]   = {{1, 2}, {1, 2}, {4, 4}, {}};
    static constexpr Field Q5_0[]   = {{1, 2}, {1, 4}, {4, 4}, {}};
    static constexpr Field Q5_1[]   = {{1, 2}, {1, 2}, {1, 4}, {4, 4}, {}};
    static constexpr Field Q8_0[]   = {{1, 2}, {8, 4}, {}};
    static constexpr Field IQ4_NL[] = {{1, 2}, {4, 4}, {}};
    static constexpr Field MXFP4[]  = {{1, 1}, {4, 4}, {}};
    static constexpr Field Q4_K[]   = {{1, 2}, {1, 2}, {12, 1}, {32, 4}, {}};
    static constexpr Field Q5_K[]   = {{1, 2}, {1, 2}, {12, 1}, {8, 4}, {32, 4}, {}};
    static constexpr Field Q6_K[]   = {{32, 4}, {16, 4}, {16, 1}, {1, 2}, {}};
    static constexpr Field IQ4_XS[] = {{1, 2}, {1, 2}, {4, 1}, {32, 4}, {}};
    switch (type) {
    case GGML_TYPE_Q4_0:
        return Q4_0;
    case GGML_TYPE_Q4_1:
        return Q4_1;
    case GGML_TYPE_Q5_0:
        return Q5_0;
    case GGML_TYPE_Q5_1:
        return Q5_1;
    case GGML_TYPE_Q8_0:
        return Q8_0;
    case GGML_TYPE_IQ4_NL:
        return IQ4_NL;
    case GGML_TYPE_MXFP4:
        return MXFP4;
    case GGML_TYPE_Q4_K:
        return Q4_K;
    case GGML_TYPE_Q5_K:
        return Q5_K;
    case GGML_TYPE_Q6_K:
        return Q6_K;
    case GGML_TYPE_IQ4_XS:
        return IQ4_XS;
    default:
        return nullptr;
    }
}

void lay_out(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * rows, void * tiles) {
    const auto from = static_cast<const char *>(rows);
    const auto to   = static_cast<char *>(tiles);
    for_each(type, n_blocks_per_row, n_rows,
             [&](size_t in_rows, size_t in_tiles, size_t bytes) { std::memcpy(to + in_tiles, from + in_rows, bytes); });
}

void take_back(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * tiles, void * rows) {
    const auto from = static_cast<const char *>(tiles);
    const auto to   = static_cast<char *>(rows);
    for_each(type, n_blocks_per_row, n_rows,
             [&](size_t in_rows, size_t in_tiles, size_t bytes) { std::memcpy(to + in_rows, from + in_tiles, bytes); });
}

}  // namespace pyg::kernels
