#include "kernels/qgemm/pack.hpp"

#include <algorithm>
#include <cstring>

namespace pyg::kernels {

namespace {

// Interleave a field's units of 16 rows. The unit is a type, so that a copy is one instruction.
template <class Unit>
void interleave_units(const char * const (&rows)[GROUP_ROWS], size_t offset, int n_units, char * units) {
    for (int u = 0; u < n_units; ++u, offset += sizeof(Unit)) {
        for (int r = 0; r < GROUP_ROWS; ++r, units += sizeof(Unit)) {
            std::memcpy(units, rows[r] + offset, sizeof(Unit));
        }
    }
}

void interleave_units(const char * const (&rows)[GROUP_ROWS], size_t block, const Field & field, char * units) {
    const size_t offset = block + field.offset;
    switch (field.unit_bytes) {
    case 1:
        return interleave_units<uint8_t>(rows, offset, field.n_units, units);
    case 2:
        return interleave_units<uint16_t>(rows, offset, field.n_units, units);
    default:
        return interleave_units<uint32_t>(rows, offset, field.n_units, units);
    }
}

// Extract a field of the row whose first unit is at `units`.
void extract_field(const char * units, const Field & field, char * block) {
    for (int u = 0; u < field.n_units; ++u) {
        std::memcpy(block + field.offset + u * field.unit_bytes, units + GROUP_ROWS * u * field.unit_bytes,
                    field.unit_bytes);
    }
}

}  // namespace

const Field * packed_fields(ggml_type type) {
    switch (type) {
#define PYG_WEIGHT_TYPE(NAME, UNIT, ...)                                                                               \
    case GGML_TYPE_##NAME: {                                                                                           \
        static constexpr Field FIELDS[] = {__VA_ARGS__, {}};                                                           \
        return FIELDS;                                                                                                 \
    }
#include "kernels/qgemm/types.def"
    default:
        return nullptr;
    }
}

void pack_rows(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * rows, void * tiles) {
    const size_t block = ggml_type_size(type);
    const size_t row   = n_blocks_per_row * block;
    auto         to    = static_cast<char *>(tiles);
    for (int64_t first = 0; first < n_rows; first += GROUP_ROWS) {
        const char * at[GROUP_ROWS];
        for (int r = 0; r < GROUP_ROWS; ++r) {
            at[r] = static_cast<const char *>(rows) + std::min(first + r, n_rows - 1) * row;
        }
        for (int64_t b = 0; b < n_blocks_per_row; ++b) {
            for (const Field * field = packed_fields(type); field->n_units > 0; ++field) {
                interleave_units(at, b * block, *field, to);
                to += GROUP_ROWS * field->n_units * field->unit_bytes;
            }
        }
    }
}

void unpack_rows(ggml_type type, int64_t n_blocks_per_row, int64_t n_rows, const void * tiles, void * rows) {
    const size_t block = ggml_type_size(type);
    const size_t row   = n_blocks_per_row * block;
    for (int64_t i = 0; i < n_rows; ++i) {
        const int r    = i % GROUP_ROWS;
        auto      from = static_cast<const char *>(tiles) + (i - r) * row;
        for (int64_t b = 0; b < n_blocks_per_row; ++b) {
            for (const Field * field = packed_fields(type); field->n_units > 0; ++field) {
                extract_field(from + r * field->unit_bytes, *field, static_cast<char *>(rows) + i * row + b * block);
                from += GROUP_ROWS * field->n_units * field->unit_bytes;
            }
        }
    }
}

}  // namespace pyg::kernels
