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
// Another one adds up products of BF16, 32 of each row, to sums that are floats: first those of even and those of odd
// places by themselves, then both to the sum. Subnormal numbers count as zeros. For it weights are on the left, as they
// lie in their rows:
//
// sums         [row][column]
// weights      [row][values]
// activations  [values / 2][column][2]
//
// Here they are as assembler code: they then need no flags of the compiler, so that every build for AVX-512 VNNI has
// them, and compilers know that they read memory, which gcc's functions do not tell them.
#pragma once

#include <cstdint>

namespace pyg::kernels::amx {

constexpr int COLUMNS   = 16;  // of a register of activations
constexpr int ROW_BYTES = 64;  // at most

// What each register is for: with bytes, activations are on the left.
enum Register { SUMS = 0, LEFT = 4, RIGHT = 6, ACTIVATIONS = LEFT, WEIGHTS = RIGHT };

// The registers' shapes as the processor reads them.
struct alignas(64) Shapes {
    uint8_t  palette       = 1;
    uint8_t  first_row     = 0;
    uint8_t  reserved[14]  = {};
    uint16_t row_bytes[16] = {};
    uint8_t  rows[16]      = {};
};

// For products of so many bytes of each row at once.
inline Shapes shapes_for_bytes(int values) {
    Shapes shapes;
    for (int i = 0; i < 8; ++i) {
        shapes.rows[i]      = static_cast<uint8_t>(i < WEIGHTS ? COLUMNS : values / 4);
        shapes.row_bytes[i] = static_cast<uint16_t>(i >= ACTIVATIONS && i < WEIGHTS ? values : ROW_BYTES);
    }
    return shapes;
}

// For products of BF16. Registers of sums alternate: even ones are for the columns of the first register of
// activations, odd ones for those of the second, which may have none.
inline Shapes shapes_for_bf16(int first, int second) {
    Shapes shapes;
    for (int i = 0; i < 8; ++i) {
        const bool has_weights = i >= LEFT && i < RIGHT;
        const int  columns     = i % 2 == 0 ? first : second;
        shapes.rows[i]         = has_weights || columns != 0 ? 16 : 0;
        shapes.row_bytes[i]    = static_cast<uint16_t>(has_weights ? ROW_BYTES : 4 * columns);
    }
    return shapes;
}

}  // namespace pyg::kernels::amx

#ifndef PYG_MODELLED_AMX  // csrc/tests
#    include <cpuid.h>
#    include <sys/syscall.h>
#    include <unistd.h>

namespace pyg::kernels::amx {

// Whether this process may use them. The answer does not change any more once they were asked for.
inline bool g_is_available = false, g_multiplies_bf16 = false;

inline bool is_available() { return g_is_available; }
inline bool multiplies_bf16() { return g_multiplies_bf16; }

// Asks the system for them. It refuses if a thread has a stack for signals that is too small to keep the registers on.
// To be called once, before other threads compute.
inline void ask_for() {
    constexpr unsigned BF16 = 1u << 22, TILES = 1u << 24, BYTES = 1u << 25;
    constexpr long     REQUEST = 0x1023, TILE_DATA = 18;  // of the system's arch_prctl
    unsigned           a = 0, b = 0, c = 0, d = 0;
    g_is_available    = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILES) && (d & BYTES) &&
                        syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
    g_multiplies_bf16 = g_is_available && (d & BF16);
}

// What a thread's registers are set up for at present, as the functions below number it, or 0, if not by us.
inline thread_local int    t_purpose = 0;
inline thread_local Shapes t_shapes_of_others;

// It takes some 200 cycles, so it is done once for many products.
inline void set_up(const Shapes & shapes, int purpose) {
    if (t_purpose == 0) {  // libraries that share this thread may have set them up for good, as upstream does
        asm volatile("sttilecfg %0" : "=m"(t_shapes_of_others));
    }
    asm volatile("ldtilecfg %0" ::"m"(shapes));
    t_purpose = purpose;
}

// Makes them what products of VALUES bytes of each row at once need.
template <int VALUES>
inline void prepare() {
    if (t_purpose != VALUES) {
        set_up(shapes_for_bytes(VALUES), VALUES);
    }
}

// The same for products of BF16 with so many columns in the first register of activations and in the second.
inline void prepare_bf16(int first, int second) {
    const int purpose = (first + 16) * 32 + second;  // larger than any VALUES
    if (t_purpose != purpose) {
        set_up(shapes_for_bf16(first, second), purpose);
    }
}

// The thread has done with them. If nobody else has set them up, the system need not keep their contents.
inline void release() {
    if (t_purpose == 0) {
        return;
    }
    if (t_shapes_of_others.palette != 0) {
        asm volatile("ldtilecfg %0" ::"m"(t_shapes_of_others));
    } else {
        asm volatile("tilerelease");
    }
    t_purpose = 0;
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

// The same with BF16, weights on the left.
template <int SUMS_, int LEFT_, int RIGHT_>
inline void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS_), "i"(LEFT_), "i"(RIGHT_));
}

}  // namespace pyg::kernels::amx
#endif
