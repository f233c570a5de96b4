// Columns of activations in sets of 16, the rows of an AMX register.
#pragma once

#include "kernels/qgemm/amx/weight_planes.hpp"

namespace pyg::kernels {

static_assert(PADDING_COLUMNS >= amx::COLUMNS - 1);

// 16 columns, one after the other, and their results.
template <class Type>
struct ColumnSet {
    const QuantizedColumnFor<Type> * columns;
    float (*results)[GROUP_ROWS];

    template <int N>
    PYG_INLINE void load_results(int first, Floats (&registers)[N]) const {
        unroll<N>([&](auto n) PYG_INLINE { registers[n] = Floats::load(results[first + n]); });
    }

    template <int N>
    PYG_INLINE void store_results(int first, const Floats (&registers)[N]) const {
        unroll<N>([&](auto n) PYG_INLINE { registers[n].store(results[first + n]); });
    }
};

// The columns of a product in sets of 16. Those that do not follow each other in memory are copied. The last set may be
// short: what lies behind it is computed, too, but never read (PADDING_COLUMNS in quantized_activations.hpp).
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
    ColumnSet<Type> take(int i, const QuantizedColumnFor<Type> * columns) {
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

    const QuantizedColumnFor<Type> * copied(const QuantizedColumnFor<Type> * columns, int first, int n) {
        QuantizedColumnFor<Type> * const copy = copies_[n_copies_++ % N_COPIES];
        for (int c = 0; c < amx::COLUMNS; ++c) {
            copy_column(columns[which_[first + std::min(c, n - 1)]], copy[c]);
        }
        return copy;
    }

    // By vectors: compilers call a function for it, or use instructions that take long to start.
    static void copy_column(const QuantizedColumnFor<Type> & from, QuantizedColumnFor<Type> & to) {
        constexpr int BYTES = 64;
        static_assert(sizeof(to) % BYTES == 0);
        unroll<sizeof(to) / BYTES>([&](auto i) PYG_INLINE {
            const auto at = reinterpret_cast<const char *>(&from) + i * BYTES;
            Ints::load_bits(at).store(reinterpret_cast<char *>(&to) + i * BYTES);
        });
    }

    const int32_t * const which_;
    const int             n_columns_;
    float (*const results_)[GROUP_ROWS];
    bool                     in_order_;  // all of them, as in plain products
    int                      n_copies_ = 0;
    QuantizedColumnFor<Type> copies_[N_COPIES][amx::COLUMNS];
    alignas(64) float last_results_[amx::COLUMNS][GROUP_ROWS] = {};
};

// Adds a step of values, which begins with the tile's number `k`, to the sums with number NUMBER. The weights are in
// registers.
template <class Type, int NUMBER>
PYG_INLINE inline void add_values(const ColumnSet<Type> & set, int k) {
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

}  // namespace pyg::kernels
