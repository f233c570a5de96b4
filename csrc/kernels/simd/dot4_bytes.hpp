// Dot products of bytes with an instruction that adds four products to a 32-bit sum, which cannot overflow.
#pragma once

namespace pyg::kernels {

// For unsigned weights of up to 6 bits.
struct NarrowDots {
    using Activation = int8_t;

    static constexpr int STEP = 4;  // values of a row that a lane has

    static constexpr int steps_that_fit(int) { return 64; }

    static constexpr bool sub_block_fits(int, int) { return true; }

    // Initial sum of a sub-block, which subtracts `zero_point` from all its weights; `low` and `high` are the sums of
    // its pairs of activations.
    static uint32_t start(int low, int high, int zero_point) {
        return static_cast<uint32_t>(-zero_point * (low + high));
    }

    static void store(Activation * q, const Ints & x) { store_bytes(q, x); }

    static void add(Ints & sums, const Ints & weights, const Ints & activations) {
        sums = dot4_add(sums, weights, activations);
        keep_in_register(sums);
    }

    // Scales of 16 rows in the form of total().
    static Ints scales(const Ints & x) { return x; }

    static Ints total(const Ints & sums) { return sums; }
    static Ints total(const Ints & sums, const Ints & scales) { return multiply(sums, scales); }
};

// For weights of 8 bits.
struct WideDots : NarrowDots {
    static constexpr int ZERO_POINT = ZERO_POINT_OF_BYTES;  // added by add_bytes()

    // Add the signed weights of unit U (four of each row) to `sums`.
    template <int I, int U, class Sums>
    PYG_INLINE static void add_bytes(Sums & sums, const Ints & bytes) {
        sums.template add<I, U>(add_zero_point(bytes));
    }
};

}  // namespace pyg::kernels
