// Products of bytes where an instruction adds four of them to a sum of 32 bits, so that no sum can run over.
#pragma once

namespace pyg::kernels {

// For weights without sign, of up to 6 bits.
struct NarrowDots {
    using Activation = int8_t;

    static constexpr int STEP = 4;  // values of a row that a lane has

    static constexpr int steps_that_fit(int) { return 64; }

    static constexpr bool segment_fits(int, int) { return true; }

    // What the sums of a segment begin with so that `plus` is taken off all its weights; `low` and `high` are the sums
    // of its pairs of activations.
    static uint32_t start(int low, int high, int plus) { return static_cast<uint32_t>(-plus * (low + high)); }

    static void store(Activation * q, const Ints & x) { store_bytes(q, x); }

    static void add(Ints & sums, const Ints & weights, const Ints & activations) {
        sums = add_products_of_four(sums, weights, activations);
        keep(sums);
    }

    // The scales of 16 rows as total() takes them.
    static Ints scales(const Ints & x) { return x; }

    static Ints total(const Ints & sums) { return sums; }
    static Ints total(const Ints & sums, const Ints & scales) { return multiply(sums, scales); }
};

// For weights of 8 bits.
struct WideDots : NarrowDots {
    static constexpr int PLUS = PLUS_OF_BYTES;  // what add_bytes() adds to weights

    // Adds the weights, with sign, of unit U of four of each row to some `sums`.
    template <int I, int U, class Sums>
    PYG_INLINE static void add_bytes(Sums & sums, const Ints & bytes) {
        sums.template add<I, U>(plus_of_bytes(bytes));
    }
};

}  // namespace pyg::kernels
