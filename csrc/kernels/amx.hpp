// AMX: eight registers of 16 rows of up to 64 bytes, and an instruction that multiplies two of them.
//
// For each of 16 columns of activations and each of 16 rows of weights it adds up the products of up to 64 values:
//
// sums         [column][16 rows]            32 bits each
// activations  [column][values]             with sign
// weights      [values / 4][16 rows][4]     as tiles have them
//
// While such instructions are in progress, processors have one unit less for vectors' multiplications and conversions.
//
// Here they are as assembler code: they then need no flags of the compiler, so that every build for AVX-512 VNNI has
// them, and compilers know that they read memory, which gcc's functions do not tell them.
#pragma once

#include <cstdint>

namespace pyg::kernels::amx {

constexpr int COLUMNS   = 16;  // of a register of activations
constexpr int ROW_BYTES = 64;  // at most

// What each register is for.
enum Register { SUMS = 0, ACTIVATIONS = 4, WEIGHTS = 6 };

}  // namespace pyg::kernels::amx

#ifndef PYG_MODELLED_AMX  // csrc/tests
#    include <cpuid.h>
#    include <sys/syscall.h>
#    include <unistd.h>

namespace pyg::kernels::amx {

// Whether this process may use them. The answer does not change any more once they were asked for.
inline bool g_is_available = false;

inline bool is_available() { return g_is_available; }

// Asks the system for them. It refuses if a thread has a stack for signals that is too small to keep the registers on.
// To be called once, before other threads compute.
inline void ask_for() {
    constexpr unsigned TILES = 1u << 24, BYTES = 1u << 25;
    constexpr long     REQUEST = 0x1023, TILE_DATA = 18;  // of the system's arch_prctl
    unsigned           a = 0, b = 0, c = 0, d = 0;
    g_is_available = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILES) && (d & BYTES) &&
                     syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

// The registers' shapes as the processor reads them.
struct alignas(64) Shapes {
    uint8_t  palette       = 1;
    uint8_t  first_row     = 0;
    uint8_t  reserved[14]  = {};
    uint16_t row_bytes[16] = {};
    uint8_t  rows[16]      = {};
};

// How a thread's registers are at present: for products of so many values of each row, or 0, if not ours.
inline thread_local int    t_values = 0;
inline thread_local Shapes t_shapes_of_others;

// Makes them what products of VALUES of each row at once need. It takes some 200 cycles, so it is done once for many.
template <int VALUES>
inline void prepare() {
    if (t_values == VALUES) {
        return;
    }
    if (t_values == 0) {  // libraries that share this thread may have set them up for good, as upstream does
        asm volatile("sttilecfg %0" : "=m"(t_shapes_of_others));
    }
    Shapes shapes;
    for (int i = 0; i < 8; ++i) {
        shapes.rows[i]      = i < WEIGHTS ? COLUMNS : VALUES / 4;
        shapes.row_bytes[i] = i >= ACTIVATIONS && i < WEIGHTS ? VALUES : ROW_BYTES;
    }
    asm volatile("ldtilecfg %0" ::"m"(shapes));
    t_values = VALUES;
}

// The thread has done with them. If nobody else has set them up, the system need not keep their contents.
inline void release() {
    if (t_values == 0) {
        return;
    }
    if (t_shapes_of_others.palette != 0) {
        asm volatile("ldtilecfg %0" ::"m"(t_shapes_of_others));
    } else {
        asm volatile("tilerelease");
    }
    t_values = 0;
}

template <int REGISTER>
inline void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(REGISTER));
}

// Rows lie `stride` bytes apart.
template <int REGISTER>
inline void load(const void * rows, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(REGISTER), "r"(rows), "r"(stride) : "memory");
}

template <int REGISTER>
inline void store(void * rows) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(REGISTER), "r"(rows), "r"(int64_t{ROW_BYTES}) : "memory");
}

// Adds products to a register of sums. Weights have a sign or none.
template <int SUMS_, int ACTIVATIONS_, int WEIGHTS_, bool WITH_SIGN>
inline void multiply() {
    if constexpr (WITH_SIGN) {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS_), "i"(ACTIVATIONS_), "i"(WEIGHTS_));
    } else {
        asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS_), "i"(ACTIVATIONS_), "i"(WEIGHTS_));
    }
}

}  // namespace pyg::kernels::amx
#endif
