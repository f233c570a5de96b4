// A group, all values of 16 rows of weights, times columns of activations, 16 at a time, in AMX's registers.
//
// The sums are the same integers as those of multiply_directly.hpp, and become floats by the same code. While the
// registers are busy with sums, vectors add earlier ones to results: a processor looks ahead by some hundred
// instructions only, so the two are interleaved. Weights are unpacked before, when vectors have both their units.
#pragma once

#include "planes.hpp"

namespace pyg::kernels {

// Sums of a block for 16 columns, as the registers leave them.
struct alignas(64) BlockSums {
    int32_t low[amx::COLUMNS][GROUP_ROWS];
    int32_t high[amx::COLUMNS][GROUP_ROWS];  // of plane 1
};

// 16 columns, one after the other, and their results.
template <class Type>
struct ColumnSet {
    const ColumnTileFor<Type> * columns;
    float (*results)[GROUP_ROWS];

    // Adds the sums of block `b` to the results of N columns from `first` on, which are in registers.
    template <int N>
    PYG_INLINE void add(const Factors & factors, int b, int first, const BlockSums & sums, Floats (&results)[N]) const {
        const ColumnTileFor<Type> * at[N];
        Ints                        totals[N];
        unrolled<N>([&](auto n) PYG_INLINE {
            at[n]           = columns + first + n;
            const Ints high = load(sums.high[first + n]);
            totals[n]       = kernels::add(load(sums.low[first + n]), up_lanes<PlanesOf<Type>::RADIX_BITS>(high));
        });
        end_block<Type, N>(factors, b, at, totals, results);
    }

    template <int N>
    PYG_INLINE void load_results(int first, Floats (&registers)[N]) const {
        unrolled<N>([&](auto n) PYG_INLINE { registers[n] = load_floats(results[first + n]); });
    }

    template <int N>
    PYG_INLINE void store_results(int first, const Floats (&registers)[N]) const {
        unrolled<N>([&](auto n) PYG_INLINE { store(results[first + n], registers[n]); });
    }
};

// Adds a step of values, which begins with the tile's number `k`, to the sums with number NUMBER. The weights are in
// registers.
template <class Type, int NUMBER>
PYG_INLINE inline void add_step(const ColumnSet<Type> & set, int k) {
    constexpr bool WITH_SIGN = PlanesOf<Type>::WITH_SIGN;
    constexpr int  Q = amx::ACTIVATIONS + NUMBER % 2, SUMS = amx::SUMS + NUMBER * PlanesOf<Type>::N;
    amx::load<Q>(set.columns->q + k, sizeof(*set.columns));
    if constexpr (PlanesOf<Type>::SCALED) {
        amx::multiply<SUMS, Q, amx::WEIGHTS, false>();
        amx::multiply<SUMS + 1, Q, amx::WEIGHTS + 1, WITH_SIGN>();
    } else {
        amx::multiply<SUMS, Q, amx::WEIGHTS, WITH_SIGN>();
    }
}

// Blocks without scales: each is one step.

// What sums begin with that are to be floats.
struct alignas(64) FirstSums {
    uint32_t bits[amx::COLUMNS][GROUP_ROWS] = {};

    constexpr FirstSums() {
        for (auto & column : bits) {
            for (uint32_t & sum : column) {
                sum = BITS_OF_FLOAT_OF_SUM;
            }
        }
    }
};

inline constexpr FirstSums FIRST_SUMS;

// Begins the sums of block `b`, in register NUMBER of those for sums.
template <class Type, int NUMBER, bool AS_FLOATS>
PYG_INLINE inline void sum_block(const Planes<Type> & planes, int b, const ColumnSet<Type> & set) {
    const int k = b * Type::BLOCK;
    if constexpr (AS_FLOATS) {
        amx::load<amx::SUMS + NUMBER>(FIRST_SUMS.bits, amx::ROW_BYTES);
    } else {
        amx::clear<amx::SUMS + NUMBER>();
    }
    amx::load<amx::WEIGHTS>(planes.values[0][k / 4], amx::ROW_BYTES);
    add_step<Type, NUMBER>(set, k);
}

// Adds block `b` to the results of a set.
template <class Type, bool AS_FLOATS>
PYG_INLINE inline void add_block(const Planes<Type> & planes, int b, const ColumnSet<Type> & set,
                                 const int32_t (&sums)[amx::COLUMNS][GROUP_ROWS], Floats (&results)[amx::COLUMNS]) {
    const ColumnTileFor<Type> * at[amx::COLUMNS];
    unrolled<amx::COLUMNS>([&](auto n) PYG_INLINE { at[n] = set.columns + n; });
    if constexpr (AS_FLOATS) {
        // d * (x + FLOAT_OF_SUM) - d * FLOAT_OF_SUM is d * x, rounded once: the second product is exact, because d has
        // 11 bits.
        const Floats d = load_floats(planes.factors.d[b]), excess = multiply(d, everywhere(-FLOAT_OF_SUM));
        add_products<Type, amx::COLUMNS>(planes.factors, b, at, results, [&](auto n) PYG_INLINE {
            return multiply_add(d, as_floats(load(sums[n])), excess);
        });
    } else {
        Ints totals[amx::COLUMNS];
        unrolled<amx::COLUMNS>([&](auto n) PYG_INLINE { totals[n] = load(sums[n]); });
        end_block<Type, amx::COLUMNS>(planes.factors, b, at, totals, results);
    }
}

// Adds a tile's blocks to the results of a set. A register is stored two blocks later, when its sums are complete, and
// read another block later, when they are in memory: instructions that wait would be in the way of others.
template <class Type, bool AS_FLOATS>
PYG_ALONE void multiply_blocks(const Planes<Type> & planes, int n_blocks, const ColumnSet<Type> & set) {
    constexpr int       N = TILE_K / 32, REGISTERS = 4, STORED = 2, READ = 3;
    Floats              results[amx::COLUMNS];
    alignas(64) int32_t sums[2][amx::COLUMNS][GROUP_ROWS];
    set.load_results(0, results);
    unrolled<N + READ>([&](auto i) PYG_INLINE {
        if constexpr (i < N) {
            if (i < n_blocks) {
                sum_block<Type, i % REGISTERS, AS_FLOATS>(planes, i, set);
            }
        }
        if constexpr (i >= STORED && i < N + STORED) {
            if (i - STORED < n_blocks) {
                amx::store<amx::SUMS + (i - STORED) % REGISTERS>(sums[(i - STORED) % 2]);
            }
        }
        if constexpr (i >= READ) {
            if (i - READ < n_blocks) {
                add_block<Type, AS_FLOATS>(planes, i - READ, set, sums[(i - READ) % 2], results);
            }
        }
    });
    set.store_results(0, results);
}

// Blocks with scales: each is a tile, of several steps.

constexpr int STEPS_OF_TILE = TILE_K / amx::ROW_BYTES;

// A block times one or two sets of columns: summed, and not yet part of the results.
template <class Type>
struct Summed {
    const Factors * factors = nullptr;
    ColumnSet<Type> sets[2];
    int             n_sets = 0;
    BlockSums       sums[2];

    // Adds the sums of a share of the columns, one for each step of the next block.
    PYG_INLINE void add_share(int step) const {
        constexpr int N = amx::COLUMNS / STEPS_OF_TILE;
        for (int i = 0; i < n_sets; ++i) {
            Floats results[N];
            sets[i].load_results(step * N, results);
            sets[i].add(*factors, 0, step * N, sums[i], results);
            sets[i].store_results(step * N, results);
        }
    }
};

// Writes the sums of SETS sets, and meanwhile adds to their results what was summed before.
template <class Type, int SETS>
PYG_ALONE void sum_sets(const Planes<Type> & planes, const Summed<Type> & before, Summed<Type> & summed) {
    unrolled<2 * SETS>([&](auto i) PYG_INLINE { amx::clear<amx::SUMS + i>(); });
    for (int step = 0; step < STEPS_OF_TILE; ++step) {
        const int k = step * amx::ROW_BYTES;
        amx::load<amx::WEIGHTS>(planes.values[0][k / 4], amx::ROW_BYTES);
        amx::load<amx::WEIGHTS + 1>(planes.values[1][k / 4], amx::ROW_BYTES);
        unrolled<SETS>([&](auto i) PYG_INLINE { add_step<Type, i>(summed.sets[i], k); });
        before.add_share(step);
    }
    unrolled<SETS>([&](auto i) PYG_INLINE {
        amx::store<amx::SUMS + 2 * i>(summed.sums[i].low);
        amx::store<amx::SUMS + 2 * i + 1>(summed.sums[i].high);
    });
    summed.factors = &planes.factors;
    summed.n_sets  = SETS;
}

// The columns of a product in sets of 16. Those that do not follow each other in memory are copied. The last set may be
// short: what lies behind it is computed, too, and nobody reads it (NO_COLUMNS in columns.hpp).
template <class Type>
class ColumnSets {
  public:
    ColumnSets(const int32_t * which, int n_columns, float (*results)[GROUP_ROWS])
        : which_(which), n_columns_(n_columns), results_(results) {
        in_order_ = are_in_order(0, n_columns);
        std::memset(results, 0, n_columns * sizeof(*results));
    }

    int n() const { return (n_columns_ + amx::COLUMNS - 1) / amx::COLUMNS; }

    // Set `i`, of the columns' tiles that begin at `columns`. A copy is good until N_COPIES others have been made.
    ColumnSet<Type> at(int i, const ColumnTileFor<Type> * columns) {
        const int  first = i * amx::COLUMNS, n = std::min(n_columns_ - first, amx::COLUMNS);
        const auto results = n == amx::COLUMNS ? results_ + first : last_results_;
        return {in_order_ || are_in_order(first, n) ? columns + which_[first] : copied(columns, first, n), results};
    }

    // To be called at the end.
    void take_last_results() {
        const int n = n_columns_ % amx::COLUMNS;
        std::memcpy(results_ + n_columns_ - n, last_results_, n * sizeof(*results_));
    }

  private:
    static constexpr int N_COPIES = 4;  // of two sets, and of the two before

    bool are_in_order(int first, int n) const {
        bool good = true;
        for (int c = 1; c < n; ++c) {
            good &= which_[first + c] == which_[first] + c;
        }
        return good;
    }

    const ColumnTileFor<Type> * copied(const ColumnTileFor<Type> * columns, int first, int n) {
        ColumnTileFor<Type> * const copy = copies_[n_copies_++ % N_COPIES];
        for (int c = 0; c < n; ++c) {
            copy_column<Type>(columns[which_[first + c]], copy[c]);
        }
        return copy;
    }

    const int32_t * const which_;
    const int             n_columns_;
    float (*const results_)[GROUP_ROWS];
    bool                in_order_;  // all of them, as in plain products
    int                 n_copies_ = 0;
    ColumnTileFor<Type> copies_[N_COPIES][amx::COLUMNS];
    alignas(64) float last_results_[amx::COLUMNS][GROUP_ROWS] = {};
};

// Types without scales.
template <class Type>
void multiply_plain(const uint8_t * group, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                    ColumnSets<Type> & sets) {
    Planes<Type> planes;
    for (int64_t first = 0; first < k; first += TILE_K, columns += stride) {
        const int n_blocks = static_cast<int>(std::min<int64_t>(TILE_K, k - first)) / Type::BLOCK;
        write_planes<Type>(group, n_blocks, planes);
        group += n_blocks * block_bytes<Type>();
        for (int i = 0; i < sets.n(); ++i) {
            const ColumnSet<Type> set = sets.at(i, columns);
            if (!Type::LARGE && planes.finite) {
                multiply_blocks<Type, true>(planes, n_blocks, set);
            } else {
                multiply_blocks<Type, false>(planes, n_blocks, set);
            }
        }
    }
}

// Types with scales.
template <class Type>
void multiply_scaled(const uint8_t * group, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                     ColumnSets<Type> & sets) {
    Planes<Type> planes[2];  // what was summed before still needs its factors
    Summed<Type> summed[2];
    int          turn = 0;
    for (int64_t tile = 0; tile < k / TILE_K; ++tile, columns += stride, group += block_bytes<Type>()) {
        Planes<Type> & here = planes[tile % 2];
        write_planes<Type>(group, 1, here);
        for (int i = 0; i < sets.n(); i += 2, turn ^= 1) {
            Summed<Type> & now = summed[turn];
            now.sets[0]        = sets.at(i, columns);
            if (i + 1 < sets.n()) {
                now.sets[1] = sets.at(i + 1, columns);
                sum_sets<Type, 2>(here, summed[turn ^ 1], now);
            } else {
                sum_sets<Type, 1>(here, summed[turn ^ 1], now);
            }
        }
    }
    for (int step = 0; step < STEPS_OF_TILE; ++step) {
        summed[turn ^ 1].add_share(step);
    }
}

// results[n][r] is row r times column which[n]. The columns' tiles lie `stride` apart. The caller releases the
// registers.
template <class Type>
void multiply_with_amx(const uint8_t * group, int64_t k, const ColumnTileFor<Type> * columns, int64_t stride,
                       const int32_t * which, int n_columns, float (*results)[GROUP_ROWS]) {
    amx::prepare<PlanesOf<Type>::VALUES>();
    ColumnSets<Type> sets(which, n_columns, results);
    if constexpr (PlanesOf<Type>::SCALED) {
        multiply_scaled<Type>(group, k, columns, stride, sets);
    } else {
        multiply_plain<Type>(group, k, columns, stride, sets);
    }
    sets.take_last_results();
}

}  // namespace pyg::kernels
