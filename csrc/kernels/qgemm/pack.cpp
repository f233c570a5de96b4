#include "kernels/qgemm/pack.hpp"

#include <algorithm>
#include <cstring>

namespace pyg::kernels {

namespace {

// Puts a field's units of 16 rows side by side. The size of a unit is a type, so that a copy is one instruction.
template <class Unit>
void put_side_by_side(const char * const (&rows)[GROUP_ROWS], size_t offset, int n_units, char * units) {
    for (int u = 0; u < n_units; ++u, offset += sizeof(Unit)) {
        for (int r = 0; r < GROUP_ROWS; ++r, units += sizeof(Unit)) {
            std::memcpy(units, rows[r] + offset, sizeof(Unit));
        }
    }
}

void put_side_by_side(const char * const (&rows)[GROUP_ROWS], size_t block, const Field & field, char * units) {
    const size_t offset = block + field.offset;
    switch (field.unit_bytes) {
    case 1:
        return put_side_by_side<uint8_t>(rows, offset, field.n_units, units);
    case 2:
        return put_side_by_side<uint16_t>(rows, offset, field.n_units, units);
    default:
        return put_side_by_side<uint32_t>(rows, offset, field.n_units, units);
    }
}

// Takes a field of the row whose first unit is at `units`.
void take_out(const char * units, const Field & field, char * block) {
    for (int u = 0; u < field.n_units; ++u) {
        std::memcpy(block + field.offset + u * field.unit_bytes, units + GROUP_ROWS * u * field.unit_bytes,
                    field.unit_bytes);
    }
}

}  // namespace

const Field * fields_of(ggml_type type) {
    static constexpr Field Q4_0[]   = {{0, 1, 2}, {2, 4, 4}, {}};
    static constexpr Field Q4_1[]   = {{0, 2, 2}, {4, 4, 4}, {}};
    static constexpr Field Q5_0[]   = {{0, 1, 2}, {2, 1, 4}, {6, 4, 4}, {}};
    static constexpr Field Q5_1[]   = {{0, 2, 2}, {4, 1, 4}, {8, 4, 4}, {}};
    static constexpr Field Q8_0[]   = {{0, 1, 2}, {2, 8, 4}, {}};
    static constexpr Field IQ4_NL[] = {{0, 1, 2}, {2, 4, 4}, {}};
    static constexpr Field MXFP4[]  = {{0, 1, 1}, {1, 4, 4}, {}};
    static constexpr Field Q4_K[]   = {{0, 2, 2}, {4, 12, 1}, {16, 32, 4}, {}};
    static constexpr Field Q5_K[]   = {{0, 2, 2}, {4, 12, 1}, {16, 40, 4}, {}};
    static constexpr Field IQ4_XS[] = {{0, 2, 2}, {4, 4, 1}, {8, 32, 4}, {}};
    // The factor and the scales; then for each part of 64 values, the low bits of its four segments and the high ones.
    static constexpr Field Q6_K[] = {{208, 1, 2}, {192, 16, 1},               //
                                     {0, 4, 4},   {32, 4, 4},   {128, 4, 4},  //
                                     {16, 4, 4},  {48, 4, 4},   {144, 4, 4},  //
                                     {64, 4, 4},  {96, 4, 4},   {160, 4, 4},  //
                                     {80, 4, 4},  {112, 4, 4},  {176, 4, 4}, {}};
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
    const size_t block = ggml_type_size(type);
    const size_t row   = n_blocks_per_row * block;
    auto         to    = static_cast<char *>(tiles);
    for (int64_t first = 0; first < n_rows; first += GROUP_ROWS) {
        const char * at[GROUP_ROWS];
        for (int r = 0; r < GROUP_ROWS; ++r) {
            at[r] = static_cast<const char *>(rows) + std::min(first + r, n_rows - 1) * row;
        }
        for (int64_t b = 0; b < n_blocks_per_row; ++b) {
            for (const Field * field = fields_of(type); field->n_units > 0; ++field) {
                put_side_by_side(at, b * block, *field, to);
                to += GROUP_ROWS * field->n_units * field->unit_bytes;
            }
        }
    }
}

void take_back(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * tiles, void * rows) {
    const size_t block = ggml_type_size(type);
    const size_t row   = n_blocks_per_row * block;
    for (int64_t i = 0; i < n_rows; ++i) {
        const int r    = i % GROUP_ROWS;
        auto      from = static_cast<const char *>(tiles) + (i - r) * row;
        for (int64_t b = 0; b < n_blocks_per_row; ++b) {
            for (const Field * field = fields_of(type); field->n_units > 0; ++field) {
                take_out(from + r * field->unit_bytes, *field, static_cast<char *>(rows) + i * row + b * block);
                from += GROUP_ROWS * field->n_units * field->unit_bytes;
            }
        }
    }
}

}  // namespace pyg::kernels
