// Activations for BF16 weights on AMX: each is the sum of two BF16 numbers.
//
// The upper part is the rounded activation, the rest is the rounded remainder: some 17 of 24 bits count, where upstream
// keeps 8. Both are packed once for all rows of weights, for each step of 32 values of up to 16 interleaved columns:
//
// [step][upper, rest][pair of values][column][2]
#pragma once

#include "kernels/gemm/work_item.hpp"
#include "kernels/simd/amx.hpp"
#include "kernels/simd/unroll.hpp"
#include "kernels/simd/vector.hpp"

#include <algorithm>

namespace pyg::kernels {

constexpr int64_t BF16_STEP = 32;  // values of a row in a register

// 32 floats split into two BF16 numbers each, in the order of the floats.
struct SplitFloats {
    __m512i upper, rest;

    SplitFloats(const Floats16 & first, const Floats16 & second) {
        alignas(64) static constexpr int16_t UPPER_WORDS[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                                23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                                45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
        const __m512i                        partition       = _mm512_loadu_si512(UPPER_WORDS);
        const Half                           halves[2]       = {Half(first.v), Half(second.v)};
        upper = _mm512_permutex2var_epi16(halves[0].upper, partition, halves[1].upper);
        rest  = _mm512_permutex2var_epi16(halves[0].rest, partition, halves[1].rest);
    }

  private:
    // 16 floats: the upper 16 bits of each word.
    struct Half {
        __m512i upper, rest;

        explicit Half(__m512 x) {
            const __m512    nearest = to_nearest(x);
            const __mmask16 finite  = is_finite(x);
            // The largest finite floats would round to infinity, and a NaN may have bits set in its lower word only, so
            // that one becomes a quiet one.
            const __mmask16 fits     = finite & is_finite(nearest);
            const __m512i   quiet    = _mm512_or_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x400000));
            const __mmask16 is_nan   = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
            const __m512    as_it_is = _mm512_mask_blend_ps(is_nan, x, _mm512_castsi512_ps(quiet));
            const __m512    first    = cut(_mm512_mask_blend_ps(fits, as_it_is, nearest));
            const __m512    second   = _mm512_mask_blend_ps(finite, _mm512_set1_ps(0), _mm512_sub_ps(x, first));
            upper                    = _mm512_castps_si512(first);
            rest                     = _mm512_castps_si512(to_nearest(second));
        }

      private:
        static __mmask16 is_finite(__m512 x) {
            return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
        }

        static __m512 cut(__m512 x) {
            return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(-0x10000)));
        }

        // Round to nearest, ties to even.
        static __m512 to_nearest(__m512 x) {
            const __m512i bits = _mm512_castps_si512(x);
            const __m512i odd  = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
            return cut(_mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)))));
        }
    };
};

// Up to 16 columns of an item that share a register, and their packed form.
struct Bf16Columns {
    static constexpr int TERMS = 2;
    static constexpr int PAIRS = BF16_STEP / 2;

    int64_t    first = 0, n = 0;
    uint32_t * pairs = nullptr;

    Bf16Columns() = default;

    // The first 16 columns of an item (half 0) or the next (half 1). `packed` is the item's packed memory.
    Bf16Columns(const WorkItem & item, int half, int64_t n_steps, char * packed)
        : first(half * amx::COLUMNS), n(std::clamp<int64_t>(item.n_columns - first, 0, amx::COLUMNS)),
          pairs(reinterpret_cast<uint32_t *>(packed + first * column_bytes(n_steps))) {}

    // Bytes of a packed column: an extra cache line keeps the steps of all columns from mapping to the same cache sets.
    static size_t column_bytes(int64_t n_steps) { return n_steps * TERMS * PAIRS * sizeof(uint32_t) + 64; }

    uint32_t * at(int64_t step, int term) const { return pairs + (step * TERMS + term) * PAIRS * n; }
    int64_t    stride() const { return n * static_cast<int64_t>(sizeof(uint32_t)); }
};

// Transpose 16 by 16 floats.
inline void transpose(const float (&from)[16][16], float * to) {
    for (int i = 0; i < 16; i += 8) {
        for (int j = 0; j < 16; j += 8) {
            Floats8 rows[8];
            unroll<8>([&](auto r) PYG_INLINE { rows[r] = Floats8::load(from[j + r] + i); });
            transpose(rows);
            unroll<8>([&](auto r) PYG_INLINE { rows[r].store(to + (i + r) * 16 + j); });
        }
    }
}

// Pack steps [begin, end) of an item's columns.
inline void pack_columns(const WorkItem & item, const Bf16Columns & columns, int64_t begin, int64_t end) {
    alignas(64) float split[Bf16Columns::TERMS][16][Bf16Columns::PAIRS];  // the bits of pairs
    for (int64_t step = begin; step < end; ++step) {
        for (int64_t c = 0; c < columns.n; ++c) {
            const float * const x = reinterpret_cast<const float *>(item.columns[columns.first + c]) + step * BF16_STEP;
            const SplitFloats   pairs(Floats16::load(x), Floats16::load(x + 16));
            _mm512_storeu_si512(split[0][c], pairs.upper);
            _mm512_storeu_si512(split[1][c], pairs.rest);
        }
        for (int term = 0; term < Bf16Columns::TERMS; ++term) {
            const auto to = reinterpret_cast<float *>(columns.at(step, term));
            if (columns.n == amx::COLUMNS) {
                transpose(split[term], to);
                continue;
            }
            for (int pair = 0; pair < Bf16Columns::PAIRS; ++pair) {
                for (int64_t c = 0; c < columns.n; ++c) {
                    std::memcpy(to + pair * columns.n + c, &split[term][c][pair], sizeof(float));
                }
            }
        }
    }
}

}  // namespace pyg::kernels
