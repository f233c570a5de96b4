// AMX: eight tile registers of 16 rows of up to 64 bytes, and instructions that multiply two of them.
//
// For each of 16 columns of activations and each of 16 rows of weights it adds up the products of up to 64 values:
//
// sums         [column][16 rows]            32 bits each
// activations  [column][values]             with sign
// weights      [values / 4][16 rows][4]     as tiles have them
//
// While they run, one vector unit less is available for multiplications and conversions.
//
// The BF16 instruction adds 32 products of each row to float sums: those of even and of odd indices separately, then
// both to the sum. Subnormals count as zero. Here weights are on the left, in row order:
//
// sums         [row][column]
// weights      [row][values]
// activations  [values / 2][column][2]
//
// They are inline assembly: it needs no compiler flags, so every AVX-512 VNNI build has it, and it declares the memory
// that it reads, which gcc's intrinsics do not.
#pragma once

#include <cstdint>

namespace pyg::kernels::amx {

constexpr int COLUMNS   = 16;  // of a register of activations
constexpr int ROW_BYTES = 64;  // at most

// Register roles; for bytes, activations are on the left.
enum Register { SUMS = 0, LEFT = 4, RIGHT = 6, ACTIVATIONS = LEFT, WEIGHTS = RIGHT };

// Tile configuration (LDTILECFG).
struct alignas(64) Shapes {
    uint8_t  palette       = 1;
    uint8_t  first_row     = 0;
    uint8_t  reserved[14]  = {};
    uint16_t row_bytes[16] = {};
    uint8_t  rows[16]      = {};
};

// Configuration for products of `values` bytes of each row.
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

// Set by request_permission().
inline bool g_is_available = false, g_multiplies_bf16 = false;

inline bool is_available() { return g_is_available; }
inline bool multiplies_bf16() { return g_multiplies_bf16; }

// Request AMX from the kernel, once, before other threads compute. It is refused if a thread's signal stack is too
// small for the registers.
inline void request_permission() {
    constexpr unsigned BF16 = 1u << 22, TILES = 1u << 24, BYTES = 1u << 25;
    constexpr long     REQUEST = 0x1023, TILE_DATA = 18;  // of arch_prctl
    unsigned           a = 0, b = 0, c = 0, d = 0;
    g_is_available    = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILES) && (d & BYTES) &&
                        syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
    g_multiplies_bf16 = g_is_available && (d & BF16);
}

// The thread's current configuration, as numbered below; 0: not ours.
inline thread_local int    t_purpose = 0;
inline thread_local Shapes t_shapes_of_others;

// Takes some 200 cycles, so it is done once for many products.
inline void configure(const Shapes & shapes, int purpose) {
    if (t_purpose == 0) {  // other libraries may keep a configuration, as upstream does
        asm volatile("sttilecfg %0" : "=m"(t_shapes_of_others));
    }
    asm volatile("ldtilecfg %0" ::"m"(shapes));
    t_purpose = purpose;
}

// Configure for products of VALUES bytes of each row.
template <int VALUES>
inline void prepare() {
    if (t_purpose != VALUES) {
        configure(shapes_for_bytes(VALUES), VALUES);
    }
}

// Configure for BF16 products with so many columns in the first and second register of activations.
inline void prepare_bf16(int first, int second) {
    const int purpose = (first + 16) * 32 + second;  // larger than any VALUES
    if (t_purpose != purpose) {
        configure(shapes_for_bf16(first, second), purpose);
    }
}

// Restore the configuration of others, or release the registers, so that the kernel need not save them.
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

// Rows are `stride` bytes apart.
template <int REGISTER>
inline void load(const void * rows, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(REGISTER), "r"(rows), "r"(stride) : "memory");
}

template <int REGISTER>
inline void store(void * rows) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(REGISTER), "r"(rows), "r"(int64_t{ROW_BYTES}) : "memory");
}

// Add products to a register of sums; weights are signed or unsigned.
template <int SUMS_, int ACTIVATIONS_, int WEIGHTS_, bool WITH_SIGN>
inline void multiply() {
    if constexpr (WITH_SIGN) {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS_), "i"(ACTIVATIONS_), "i"(WEIGHTS_));
    } else {
        asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS_), "i"(ACTIVATIONS_), "i"(WEIGHTS_));
    }
}

// Add BF16 products, weights on the left.
template <int SUMS_, int LEFT_, int RIGHT_>
inline void multiply_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS_), "i"(LEFT_), "i"(RIGHT_));
}

}  // namespace pyg::kernels::amx
#endif
