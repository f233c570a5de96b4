// Products of bytes where instructions add two of them to a sum of 16 bits.
#pragma once

namespace pyg::kernels {

// For weights without sign, of up to 6 bits. A row's sums are two numbers of 16 bits, which is enough for some steps
// only, or for a whole segment if what its weights have too much is taken off: what runs over in between runs back.
struct NarrowDots {
    using Activation = int8_t;

    static constexpr int STEP = 4;  // values of a row that a lane has

    // Steps after which sums may no longer fit, of weights of at most `most`.
    static constexpr int steps_that_fit(int most) { return 32767 / (2 * 127 * most); }

    static constexpr bool segment_fits(int n_values, int plus) { return n_values / 2 * plus * 127 <= 32767; }

    // What the sums of a segment begin with so that `plus` is taken off all its weights; `low` and `high` are the sums
    // of its pairs of activations.
    static uint32_t start(int low, int high, int plus) {
        return static_cast<uint16_t>(-plus * low) | static_cast<uint32_t>(-plus * high) << 16;
    }

    static void store(Activation * q, const Ints & x) { store_bytes(q, x); }

    static void add(Ints & sums, const Ints & weights, const Ints & activations) {
        sums = add_words(sums, products_of_two(weights, activations));
        keep(sums);
    }

    // The scales of 16 rows as total() takes them, of numbers that fit 16 bits.
    static Ints scales(const Ints & x) { return pairs(x, x); }

    static Ints total(const Ints & sums) { return multiply_pairs(sums, everywhere(0x00010001)); }
    static Ints total(const Ints & sums, const Ints & scales) { return multiply_pairs(sums, scales); }
};

// For weights of 8 bits. Two products would not fit 16 bits, so all values have 16.
struct WideDots {
    using Activation = int16_t;

    static constexpr int STEP = 2;
    static constexpr int PLUS = 0;  // what add_bytes() adds to weights

    static constexpr bool segment_fits(int, int) { return true; }

    static void store(Activation * q, const Ints & x) { store_words(q, x); }

    // Adds the weights, with sign, of unit U of four of each row to some `sums`.
    template <int I, int U, class Sums>
    PYG_INLINE static void add_bytes(Sums & sums, const Ints & bytes) {
        sums.template add<I, 2 * U>(words_of_bytes<0>(bytes));
        sums.template add<I, 2 * U + 1>(words_of_bytes<1>(bytes));
    }

    static void add(Ints & sums, const Ints & weights, const Ints & activations) {
        sums = kernels::add(sums, multiply_pairs(weights, activations));
        keep(sums);
    }

    static Ints scales(const Ints & x) { return x; }

    static Ints total(const Ints & sums) { return sums; }
    static Ints total(const Ints & sums, const Ints & scales) { return multiply(sums, scales); }
};

}  // namespace pyg::kernels
