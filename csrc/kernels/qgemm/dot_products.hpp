// Sums of products of 16 rows of weights with N columns of activations: of segments, and from them of blocks.
#pragma once

#include "kernels/qgemm/quantized_activations.hpp"
#include "kernels/qgemm/tile.hpp"

#include <algorithm>

namespace pyg::kernels {

// N columns' parts that meet a tile.
template <class Type, int N>
using Columns = const ColumnTileFor<Type> * const (&)[N];

template <class Type>
constexpr int steps_of_segment() {
    return Type::SEGMENT / Type::Dots::STEP;
}

template <class Type>
constexpr int segments_of_block() {
    return Type::BLOCK / Type::SEGMENT;
}

// Steps that are added up before sums have to be widened.
template <class Type>
constexpr int run_of() {
    constexpr int N_STEPS = steps_of_segment<Type>();
    if constexpr (Type::MINIMA) {
        return std::min(N_STEPS, Type::Dots::steps_that_fit(Type::MOST));
    } else {
        static_assert(Type::Dots::segment_fits(Type::SEGMENT, Type::PLUS));
        return N_STEPS;
    }
}

// Has all units of a part added to `sums`.
template <class Type, class Sums, int... U>
PYG_INLINE inline void add_units(const uint8_t * block, int64_t part, Sums & sums, std::integer_sequence<int, U...>) {
    (Type::template unit<U>(block, part, sums), ...);
}

// Begins the sums of segment `s`.
template <class Type, int N>
PYG_INLINE inline void begin_sums(Columns<Type, N> columns, int64_t s, Ints (&sums)[N]) {
    unrolled<N>([&](auto n) PYG_INLINE { sums[n] = Type::PLUS != 0 ? broadcast(columns[n]->starts + s) : zero(); });
}

// Adds a step of segment `s`.
template <class Type, int N>
PYG_INLINE inline void add_step(Columns<Type, N> columns, int64_t s, int step, Ints weights, Ints (&sums)[N]) {
    const int64_t first = s * Type::SEGMENT + step * Type::Dots::STEP;
    keep(weights);
    unrolled<N>([&](auto n) PYG_INLINE { Type::Dots::add(sums[n], weights, broadcast(columns[n]->q + first)); });
}

// Adds to `totals` the sums of segment `s` as numbers of 32 bits, times its scale if it has one.
template <class Type, int N>
PYG_INLINE inline void end_sums(const Factors & factors, int64_t s, const Ints (&sums)[N], Ints (&totals)[N]) {
    unrolled<N>([&](auto n) PYG_INLINE {
        if constexpr (Type::SEGMENT == Type::BLOCK) {
            totals[n] = add(totals[n], Type::Dots::total(sums[n]));
        } else {
            totals[n] = add(totals[n], Type::Dots::total(sums[n], load(factors.scales[s])));
            if constexpr (N > 4) {  // compilers would put it off, and lack registers for what waits for it
                keep(totals[n]);
            }
        }
    });
}

// The minima of a block times a column's sums.
template <class Type>
PYG_INLINE inline Ints offset_of(const Factors & factors, const int16_t * sums) {
    if constexpr (Type::BLOCK == Type::SEGMENT) {
        return everywhere(static_cast<int32_t>(*sums));
    } else {
        constexpr int N_PAIRS = segments_of_block<Type>() / 2;
        Ints          offset  = zero();
        unrolled<N_PAIRS>([&](auto p) PYG_INLINE {
            offset = add(offset, multiply_pairs(load(factors.offsets[p]), broadcast(sums + 2 * p)));
        });
        return offset;
    }
}

// Adds block `b` to `results`; product(n) is the sum of column n as a float, times the block's factor.
template <class Type, int N, class Product>
PYG_INLINE inline void add_products(const Factors & factors, int b, Columns<Type, N> columns, Floats (&results)[N],
                                    const Product & product) {
    unrolled<N>([&](auto n) PYG_INLINE {
        Floats sum = product(n);
        if constexpr (Type::MINIMA) {
            const Ints offset = offset_of<Type>(factors, columns[n]->sums + b * segments_of_block<Type>());
            sum               = multiply_add(load_floats(factors.m[b]), to_floats(offset), sum);
        }
        results[n] = multiply_add(sum, everywhere(columns[n]->d[b]), results[n]);
    });
}

// Adds the totals of block `b`, as floats, to `results`.
template <class Type, int N>
PYG_INLINE inline void end_block(const Factors & factors, int b, Columns<Type, N> columns, const Ints (&totals)[N],
                                 Floats (&results)[N]) {
    const Floats d = load_floats(factors.d[b]);
    if constexpr (Type::LARGE) {
        unrolled<N>([&](auto n) PYG_INLINE {
            const Floats factor = multiply(d, everywhere(columns[n]->d[b]));
            results[n]          = multiply_add(factor, to_floats(totals[n]), results[n]);
        });
    } else {
        add_products<Type, N>(factors, b, columns, results,
                              [&](auto n) PYG_INLINE { return multiply(d, to_floats(totals[n])); });
    }
}

}  // namespace pyg::kernels
