// Dot products of bytes with instructions that add two products to a 16-bit sum.
#pragma once

namespace pyg::kernels {

// For unsigned weights of up to 6 bits. A row has two 16-bit sums, enough for some steps, or for a whole sub-block if
// the zero point is subtracted: intermediate overflows wrap back.
struct NarrowDots {
    using Activation = int8_t;

    static constexpr int STEP = 4;  // values of a row that a lane has

    // Number of steps that cannot overflow with weights of at most `most`.
    static constexpr int steps_that_fit(int most) { return 32767 / (2 * 127 * most); }

    static constexpr bool sub_block_fits(int n_values, int zero_point) {
        return n_values / 2 * zero_point * 127 <= 32767;
    }

    // Initial sum of a sub-block, which subtracts `zero_point` from all its weights; `low` and `high` are the sums of
    // its pairs of activations.
    static uint32_t start(int low, int high, int zero_point) {
        return static_cast<uint16_t>(-zero_point * low) | static_cast<uint32_t>(-zero_point * high) << 16;
    }

    static void store(Activation * q, const Ints & x) { store_bytes(q, x); }

    static void add(Ints & sums, const Ints & weights, const Ints & activations) {
        sums = add_words(sums, maddubs(weights, activations));
        keep_in_register(sums);
    }

    // 16-bit scales of 16 rows in the form of total().
    static Ints scales(const Ints & x) { return pack_words(x, x); }

    static Ints total(const Ints & sums) { return madd_words(sums, Ints::set1(0x00010001)); }
    static Ints total(const Ints & sums, const Ints & scales) { return madd_words(sums, scales); }
};

// For weights of 8 bits: two products would overflow 16 bits, so values are widened to 16.
struct WideDots {
    using Activation = int16_t;

    static constexpr int STEP       = 2;
    static constexpr int ZERO_POINT = 0;  // added by add_bytes()

    static constexpr bool sub_block_fits(int, int) { return true; }

    static void store(Activation * q, const Ints & x) { store_words(q, x); }

    // Add the signed weights of unit U (four of each row) to `sums`.
    template <int I, int U, class Sums>
    PYG_INLINE static void add_bytes(Sums & sums, const Ints & bytes) {
        sums.template add<I, 2 * U>(widen_bytes<0>(bytes));
        sums.template add<I, 2 * U + 1>(widen_bytes<1>(bytes));
    }

    static void add(Ints & sums, const Ints & weights, const Ints & activations) {
        sums = kernels::add(sums, madd_words(weights, activations));
        keep_in_register(sums);
    }

    static Ints scales(const Ints & x) { return x; }

    static Ints total(const Ints & sums) { return sums; }
    static Ints total(const Ints & sums, const Ints & scales) { return multiply(sums, scales); }
};

}  // namespace pyg::kernels
