// Sums of products of 16 rows of weights with N columns of activations: of sub-blocks, and from them of blocks.
#pragma once

#include "kernels/qgemm/quantized_activations.hpp"
#include "kernels/qgemm/tile.hpp"

#include <algorithm>

namespace pyg::kernels {

// N columns' parts that meet a tile.
template <class Type, int N>
using Columns = const QuantizedColumnFor<Type> * const (&)[N];

template <class Type>
constexpr int steps_per_sub_block() {
    return Type::SUB_BLOCK / Type::Dots::STEP;
}

template <class Type>
constexpr int sub_blocks_per_block() {
    return Type::BLOCK / Type::SUB_BLOCK;
}

// Steps that are added up before sums have to be widened.
template <class Type>
constexpr int steps_before_widening() {
    constexpr int N_STEPS = steps_per_sub_block<Type>();
    if constexpr (Type::HAS_MIN) {
        return std::min(N_STEPS, Type::Dots::steps_that_fit(Type::MAX_VALUE));
    } else {
        static_assert(Type::Dots::sub_block_fits(Type::SUB_BLOCK, Type::ZERO_POINT));
        return N_STEPS;
    }
}

// Has all units of a part added to `sums`.
template <class Type, class Sums, int... U>
PYG_INLINE inline void unpack_units(const uint8_t * block, int64_t part, Sums & sums,
                                    std::integer_sequence<int, U...>) {
    (Type::template unpack<U>(block, part, sums), ...);
}

// Begins the sums of sub-block `s`.
template <class Type, int N>
PYG_INLINE inline void begin_sums(Columns<Type, N> columns, int64_t s, Ints (&sums)[N]) {
    unroll<N>([&](auto n)
                  PYG_INLINE { sums[n] = Type::ZERO_POINT != 0 ? broadcast(columns[n]->initial_sums + s) : zero(); });
}

// Adds a step of sub-block `s`.
template <class Type, int N>
PYG_INLINE inline void add_step(Columns<Type, N> columns, int64_t s, int step, Ints weights, Ints (&sums)[N]) {
    const int64_t first = s * Type::SUB_BLOCK + step * Type::Dots::STEP;
    keep_in_register(weights);
    unroll<N>([&](auto n) PYG_INLINE { Type::Dots::add(sums[n], weights, broadcast(columns[n]->q + first)); });
}

// Adds to `totals` the sums of sub-block `s` as numbers of 32 bits, times its scale if it has one.
template <class Type, int N>
PYG_INLINE inline void end_sums(const BlockScales & scales, int64_t s, const Ints (&sums)[N], Ints (&totals)[N]) {
    unroll<N>([&](auto n) PYG_INLINE {
        if constexpr (Type::SUB_BLOCK == Type::BLOCK) {
            totals[n] = add(totals[n], Type::Dots::total(sums[n]));
        } else {
            totals[n] = add(totals[n], Type::Dots::total(sums[n], Ints::load_bits(scales.sub_scales[s])));
            if constexpr (N > 4) {  // compilers would put it off, and lack registers for what waits for it
                keep_in_register(totals[n]);
            }
        }
    });
}

// The minima of a block times a column's sums.
template <class Type>
PYG_INLINE inline Ints min_term(const BlockScales & scales, const int16_t * sums) {
    if constexpr (Type::BLOCK == Type::SUB_BLOCK) {
        return Ints::set1(static_cast<int32_t>(*sums));
    } else {
        constexpr int N_PAIRS = sub_blocks_per_block<Type>() / 2;
        Ints          offset  = zero();
        unroll<N_PAIRS>([&](auto p) PYG_INLINE {
            offset = add(offset, madd_words(Ints::load_bits(scales.sub_mins[p]), broadcast(sums + 2 * p)));
        });
        return offset;
    }
}

// Adds block `b` to `results`; product(n) is the sum of column n as a float, times the block's factor.
template <class Type, int N, class Product>
PYG_INLINE inline void add_products(const BlockScales & scales, int b, Columns<Type, N> columns, Floats (&results)[N],
                                    const Product & product) {
    unroll<N>([&](auto n) PYG_INLINE {
        Floats sum = product(n);
        if constexpr (Type::HAS_MIN) {
            const Ints offset = min_term<Type>(scales, columns[n]->sums + b * sub_blocks_per_block<Type>());
            sum               = multiply_add(Floats::load(scales.m[b]), to_floats(offset), sum);
        }
        results[n] = multiply_add(sum, Floats::set1(columns[n]->d[b]), results[n]);
    });
}

// Adds the totals of block `b`, as floats, to `results`.
template <class Type, int N>
PYG_INLINE inline void end_block(const BlockScales & scales, int b, Columns<Type, N> columns, const Ints (&totals)[N],
                                 Floats (&results)[N]) {
    const Floats d = Floats::load(scales.d[b]);
    if constexpr (Type::EXPONENT_SCALE) {
        unroll<N>([&](auto n) PYG_INLINE {
            const Floats factor = d * Floats::set1(columns[n]->d[b]);
            results[n]          = multiply_add(factor, to_floats(totals[n]), results[n]);
        });
    } else {
        add_products<Type, N>(scales, b, columns, results, [&](auto n) PYG_INLINE { return d * to_floats(totals[n]); });
    }
}

}  // namespace pyg::kernels
