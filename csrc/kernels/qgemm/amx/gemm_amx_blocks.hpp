// AMX GEMM for blocks of 32 values: a block is a single step.
#pragma once

#include "kernels/qgemm/amx/column_sets.hpp"

namespace pyg::kernels {

// Sums of blocks of 32 values are small enough to be floats without being converted: begun with the bits of this one,
// they are the bits of a float that is as much larger.
constexpr float    FLOAT_OF_SUM         = 3 << 22;
constexpr uint32_t BITS_OF_FLOAT_OF_SUM = 0x4B400000;

// Initial value of sums that are read as floats.
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
    add_values<Type, NUMBER>(set, k);
}

// Adds block `b` to the results of a set.
template <class Type, bool AS_FLOATS>
PYG_INLINE inline void add_block(const Planes<Type> & planes, int b, const ColumnSet<Type> & set,
                                 const int32_t (&sums)[amx::COLUMNS][GROUP_ROWS], Floats (&results)[amx::COLUMNS]) {
    const QuantizedColumnFor<Type> * at[amx::COLUMNS];
    unroll<amx::COLUMNS>([&](auto n) PYG_INLINE { at[n] = set.columns + n; });
    if constexpr (AS_FLOATS) {
        // d * (x + FLOAT_OF_SUM) - d * FLOAT_OF_SUM is d * x, rounded once: the second product is exact, because d has
        // 11 bits.
        const Floats d = Floats::load(planes.scales.d[b]), excess = d * Floats::set1(-FLOAT_OF_SUM);
        add_products<Type, amx::COLUMNS>(planes.scales, b, at, results, [&](auto n) PYG_INLINE {
            return multiply_add(d, as_floats(Ints::load_bits(sums[n])), excess);
        });
    } else {
        Ints totals[amx::COLUMNS];
        unroll<amx::COLUMNS>([&](auto n) PYG_INLINE { totals[n] = Ints::load_bits(sums[n]); });
        end_block<Type, amx::COLUMNS>(planes.scales, b, at, totals, results);
    }
}

// Adds a tile's blocks to the results of a set. A register is stored two blocks later, when its sums are complete, and
// read another block later, when they are in memory: instructions that wait would be in the way of others.
template <class Type, bool AS_FLOATS>
PYG_NOINLINE void gemv_blocks(const Planes<Type> & planes, int n_blocks, const ColumnSet<Type> & set) {
    constexpr int       N = TILE_K / 32, REGISTERS = 4, STORED = 2, READ = 3;
    Floats              results[amx::COLUMNS];
    alignas(64) int32_t sums[2][amx::COLUMNS][GROUP_ROWS];
    set.load_results(0, results);
    unroll<N + READ>([&](auto i) PYG_INLINE {
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

// Multiplies `k` values of 16 rows with all sets.
template <class Type>
void multiply_group_of_blocks(const uint8_t * group, int64_t k, const QuantizedColumnFor<Type> * columns,
                              int64_t stride, ColumnSets<Type> & sets) {
    Planes<Type> planes;
    for (int64_t first = 0; first < k; first += TILE_K, columns += stride) {
        const int n_blocks = static_cast<int>(std::min<int64_t>(TILE_K, k - first)) / Type::BLOCK;
        write_planes<Type>(group, n_blocks, planes);
        group += n_blocks * block_bytes<Type>();
        for (int i = 0; i < sets.n(); ++i) {
            const ColumnSet<Type> set = sets.take(i, columns);
            if (!Type::EXPONENT_SCALE && planes.finite) {
                gemv_blocks<Type, true>(planes, n_blocks, set);
            } else {
                gemv_blocks<Type, false>(planes, n_blocks, set);
            }
        }
    }
}

}  // namespace pyg::kernels
