// Two vectors as one of twice the lanes: each operation is that of both halves, which may be pairs themselves.
#pragma once

#include "kernels/simd/unroll.hpp"

namespace pyg::kernels {

template <class Half>
struct VectorPair {
    static constexpr int LANES = 2 * Half::LANES;

    Half a, b;

    // Copied half by half: gcc copies structs 16 bytes at a time, which stalls the next 32-byte load.
    VectorPair() = default;
    VectorPair(const Half & first, const Half & second) : a(first), b(second) {}
    VectorPair(const VectorPair & other) : a(other.a), b(other.b) {}
    VectorPair & operator=(const VectorPair & other) {
        a = other.a;
        b = other.b;
        return *this;
    }

    template <class Number>
    PYG_INLINE static VectorPair set1(Number x) {
        return {Half::set1(x), Half::set1(x)};
    }
    template <class Number>
    PYG_INLINE static VectorPair load(const Number * from) {
        return {Half::load(from), Half::load(from + Half::LANES)};
    }
    PYG_INLINE static VectorPair load_bits(const void * from) {
        return {Half::load_bits(from), Half::load_bits(static_cast<const char *>(from) + sizeof(Half))};
    }
    PYG_INLINE void store(void * to) const {
        a.store(to);
        b.store(static_cast<char *>(to) + sizeof(Half));
    }

    friend VectorPair operator+(const VectorPair & x, const VectorPair & y) { return {x.a + y.a, x.b + y.b}; }
    friend VectorPair operator-(const VectorPair & x, const VectorPair & y) { return {x.a - y.a, x.b - y.b}; }
    friend VectorPair operator*(const VectorPair & x, const VectorPair & y) { return {x.a * y.a, x.b * y.b}; }
    friend VectorPair operator/(const VectorPair & x, const VectorPair & y) { return {x.a / y.a, x.b / y.b}; }
};

// The halves of an operand. Numbers and tables are the same for both.
template <class Half>
inline const Half & first_half(const VectorPair<Half> & x) {
    return x.a;
}
template <class Half>
inline const Half & second_half(const VectorPair<Half> & x) {
    return x.b;
}
template <class Same>
inline const Same & first_half(const Same & x) {
    return x;
}
template <class Same>
inline const Same & second_half(const Same & x) {
    return x;
}

#define PYG_OF_BOTH_HALVES(operation)                                                                                  \
    template <class Half, class... More>                                                                               \
    PYG_INLINE inline auto operation(const VectorPair<Half> & x, const More &... more) {                               \
        return VectorPair(operation(x.a, first_half(more)...), operation(x.b, second_half(more)...));                  \
    }
PYG_OF_BOTH_HALVES(add)
PYG_OF_BOTH_HALVES(add_words)
PYG_OF_BOTH_HALVES(add_zero_point)
PYG_OF_BOTH_HALVES(and_mask)
PYG_OF_BOTH_HALVES(as_floats)
PYG_OF_BOTH_HALVES(bit_or)
PYG_OF_BOTH_HALVES(copy_sign)
PYG_OF_BOTH_HALVES(dot4_add)
PYG_OF_BOTH_HALVES(ldexp_of)
PYG_OF_BOTH_HALVES(madd_words)
PYG_OF_BOTH_HALVES(maddubs)
PYG_OF_BOTH_HALVES(magnitude)
PYG_OF_BOTH_HALVES(magnitude_bits)
PYG_OF_BOTH_HALVES(max_of)
PYG_OF_BOTH_HALVES(multiply)
PYG_OF_BOTH_HALVES(multiply_add)
PYG_OF_BOTH_HALVES(multiply_two_rows)
PYG_OF_BOTH_HALVES(pack_words)
PYG_OF_BOTH_HALVES(round_nearest)
PYG_OF_BOTH_HALVES(select_less)
PYG_OF_BOTH_HALVES(shift_right)
PYG_OF_BOTH_HALVES(table_lookup)
PYG_OF_BOTH_HALVES(to_floats)
PYG_OF_BOTH_HALVES(to_ints)
#undef PYG_OF_BOTH_HALVES

#define PYG_OF_BOTH_HALVES(operation)                                                                                  \
    template <int N, class Half>                                                                                       \
    PYG_INLINE inline VectorPair<Half> operation(const VectorPair<Half> & x) {                                         \
        return {operation<N>(x.a), operation<N>(x.b)};                                                                 \
    }
PYG_OF_BOTH_HALVES(shift_left)
PYG_OF_BOTH_HALVES(shift_right)
PYG_OF_BOTH_HALVES(spread_fifth_bits)
PYG_OF_BOTH_HALVES(widen_bytes)
#undef PYG_OF_BOTH_HALVES

template <class Half>
PYG_INLINE inline VectorPair<Half> keep_lanes(const VectorPair<Half> & x, int low, int high) {
    return {keep_lanes(x.a, low, high), keep_lanes(x.b, low - Half::LANES, high - Half::LANES)};
}

template <class Half>
PYG_INLINE inline void keep_in_register(VectorPair<Half> & x) {
    keep_in_register(x.a);
    keep_in_register(x.b);
}

template <class Half>
PYG_INLINE inline auto reduce_max(const VectorPair<Half> & x) {
    return reduce_max(max_of(x.a, x.b));
}

template <class Half>
PYG_INLINE inline float reduce_add(const VectorPair<Half> & x) {
    return reduce_add(x.a + x.b);
}

template <class Half, class... More>
PYG_INLINE inline void store_reduced(float * to, const VectorPair<Half> & x, const More &... more) {
    store_reduced(to, x.a + x.b, (more.a + more.b)...);
}

}  // namespace pyg::kernels
