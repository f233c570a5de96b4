// AMX registers in plain C++, in place of csrc/kernels/simd/amx.hpp. Included before a test of tiles, it runs the AMX
// code on other processors (tools/test_kernels.py).
#pragma once

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

#define PYG_MODELLED_AMX
#include "kernels/simd/amx.hpp"
#include "tests/support/emulated_avx512.hpp"

namespace pyg::kernels::amx {

inline thread_local uint8_t t_registers[8][16][64];
inline thread_local Shapes  t_shapes;
inline thread_local bool    t_prepared = false;

inline bool is_available() { return true; }
inline bool multiplies_bf16() { return true; }

inline void request_permission() {}

inline void configure(const Shapes & shapes) {
    t_shapes   = shapes;
    t_prepared = true;
}

template <int VALUES>
void prepare() {
    configure(shapes_for_bytes(VALUES));
}

inline void prepare_bf16(int first, int second) { configure(shapes_for_bf16(first, second)); }

inline void release() { t_prepared = false; }

template <int REGISTER>
void clear() {
    assert(t_prepared && t_shapes.rows[REGISTER] != 0);
    std::memset(t_registers[REGISTER], 0, sizeof(t_registers[REGISTER]));
}

template <int REGISTER>
void load(const void * rows, int64_t stride) {
    assert(t_prepared && t_shapes.rows[REGISTER] != 0);
    std::memset(t_registers[REGISTER], 0, sizeof(t_registers[REGISTER]));
    for (int r = 0; r < t_shapes.rows[REGISTER]; ++r) {
        std::memcpy(t_registers[REGISTER][r], static_cast<const char *>(rows) + r * stride,
                    t_shapes.row_bytes[REGISTER]);
    }
}

template <int REGISTER>
void store(void * rows) {
    assert(t_prepared && t_shapes.rows[REGISTER] != 0);
    for (int r = 0; r < t_shapes.rows[REGISTER]; ++r) {
        std::memcpy(static_cast<char *>(rows) + r * 64, t_registers[REGISTER][r], t_shapes.row_bytes[REGISTER]);
    }
}

// Shapes that a processor would reject.
inline void require_fitting(int sums, int left, int right) {
    assert(t_prepared && t_shapes.rows[sums] != 0 && t_shapes.rows[sums] == t_shapes.rows[left]);
    assert(t_shapes.row_bytes[sums] != 0 && t_shapes.row_bytes[sums] == t_shapes.row_bytes[right]);
    assert(t_shapes.row_bytes[left] / 4 == t_shapes.rows[right]);
    (void) sums, (void) left, (void) right;
}

template <int SUMS_, int ACTIVATIONS_, int WEIGHTS_, bool WITH_SIGN>
void multiply() {
    require_fitting(SUMS_, ACTIVATIONS_, WEIGHTS_);
    for (int column = 0; column < 16; ++column) {
        for (int row = 0; row < 16; ++row) {
            uint32_t sum;
            std::memcpy(&sum, t_registers[SUMS_][column] + row * 4, sizeof(sum));
            for (int i = 0; i < t_shapes.row_bytes[ACTIVATIONS_]; ++i) {
                const uint8_t bits       = t_registers[WEIGHTS_][i / 4][row * 4 + i % 4];
                const int     weight     = WITH_SIGN ? static_cast<int8_t>(bits) : bits;
                const int     activation = static_cast<int8_t>(t_registers[ACTIVATIONS_][column][i]);
                sum += static_cast<uint32_t>(activation * weight);
            }
            std::memcpy(t_registers[SUMS_][column] + row * 4, &sum, sizeof(sum));
        }
    }
}

using modelled::without_smallest;

inline float number(const uint8_t * bf16) {
    const uint32_t bits = static_cast<uint32_t>(bf16[0]) << 16 | static_cast<uint32_t>(bf16[1]) << 24;
    float          value;
    std::memcpy(&value, &bits, sizeof(value));
    return without_smallest(value);
}

template <int SUMS_, int LEFT_, int RIGHT_>
void multiply_bf16() {
    require_fitting(SUMS_, LEFT_, RIGHT_);
    for (int row = 0; row < t_shapes.rows[SUMS_]; ++row) {
        for (int column = 0; column < t_shapes.row_bytes[SUMS_] / 4; ++column) {
            float sums[2] = {0, 0};  // even and odd indices
            for (int i = 0; i < 32; ++i) {
                const float weight     = number(t_registers[LEFT_][row] + 2 * i);
                const float activation = number(t_registers[RIGHT_][i / 2] + column * 4 + i % 2 * 2);
                sums[i % 2]            = without_smallest(std::fma(weight, activation, sums[i % 2]));
            }
            float sum;
            std::memcpy(&sum, t_registers[SUMS_][row] + column * 4, sizeof(sum));
            sum = without_smallest(without_smallest(sum) + without_smallest(sums[0] + sums[1]));
            std::memcpy(t_registers[SUMS_][row] + column * 4, &sum, sizeof(sum));
        }
    }
}

}  // namespace pyg::kernels::amx
