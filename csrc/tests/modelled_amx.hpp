// AMX's registers in plain C++: what csrc/kernels/amx.hpp has for processors that have them. Included before a test of
// tiles, it has the code for them run on others (tools/test_kernels.py).
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>

#define PYG_MODELLED_AMX

namespace pyg::kernels::amx {

inline thread_local uint8_t t_registers[8][16][64];
inline thread_local int     t_values = 0;  // of each row that are multiplied at once

inline bool is_available() { return true; }

inline void ask_for() {}

template <int VALUES>
void prepare() {
    t_values = VALUES;
}

inline void release() { t_values = 0; }

// Registers 0 to 3 have sums, 4 and 5 activations, the others weights.
inline int n_rows(int number) { return number < 6 ? 16 : t_values / 4; }
inline int n_bytes(int number) { return number == 4 || number == 5 ? t_values : 64; }

template <int REGISTER>
void clear() {
    assert(t_values != 0);
    std::memset(t_registers[REGISTER], 0, sizeof(t_registers[REGISTER]));
}

template <int REGISTER>
void load(const void * rows, int64_t stride) {
    assert(t_values != 0);
    for (int r = 0; r < n_rows(REGISTER); ++r) {
        std::memcpy(t_registers[REGISTER][r], static_cast<const char *>(rows) + r * stride, n_bytes(REGISTER));
    }
}

template <int REGISTER>
void store(void * rows) {
    assert(t_values != 0);
    std::memcpy(rows, t_registers[REGISTER], sizeof(t_registers[REGISTER]));
}

template <int SUMS_, int ACTIVATIONS_, int WEIGHTS_, bool WITH_SIGN>
void multiply() {
    for (int column = 0; column < 16; ++column) {
        for (int row = 0; row < 16; ++row) {
            uint32_t sum;
            std::memcpy(&sum, t_registers[SUMS_][column] + row * 4, sizeof(sum));
            for (int i = 0; i < t_values; ++i) {
                const uint8_t bits       = t_registers[WEIGHTS_][i / 4][row * 4 + i % 4];
                const int     weight     = WITH_SIGN ? static_cast<int8_t>(bits) : bits;
                const int     activation = static_cast<int8_t>(t_registers[ACTIVATIONS_][column][i]);
                sum += static_cast<uint32_t>(activation * weight);
            }
            std::memcpy(t_registers[SUMS_][column] + row * 4, &sum, sizeof(sum));
        }
    }
}

}  // namespace pyg::kernels::amx
