// The arithmetic of attention: one block of 32 cells at a time, with AVX2.
//
// A query's sums go over the dimensions of a head in their order, then over the cells of a block in theirs, each by
// one fused multiply-add, so that nothing depends on how many queries are computed together. Cells that a query does
// not see are never touched by its sums.
#pragma once

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    define PYG_ATTENTION 1

#    include "ggml.h"

#    include <immintrin.h>

#    include <cmath>
#    include <cstdint>
#    include <cstring>
#    include <initializer_list>

namespace pyg::kernels {

constexpr int64_t BLOCK = 32;             // cells
constexpr int64_t LANES = 8;              // floats of a register
constexpr int64_t PARTS = BLOCK / LANES;  // registers of a block
constexpr int64_t CHUNK = 4 * LANES;      // dimensions of values that are summed at once

// e^x of eight numbers that are at most 0: exactly 1 of 0, and 0 below the least normal number.
inline __m256 exp_of(__m256 x) {
    const __m256 least   = _mm256_set1_ps(-87.0f);
    const __m256 is_tiny = _mm256_cmp_ps(x, least, _CMP_LT_OQ);
    const __m256 clamped = _mm256_blendv_ps(x, least, is_tiny);
    const __m256 n       = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504f)),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256       r       = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), clamped);
    r                    = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p             = _mm256_set1_ps(1.0f / 5040);
    for (const float factorial : {720.0f, 120.0f, 24.0f, 6.0f, 2.0f, 1.0f, 1.0f}) {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / factorial));
    }
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const __m256  result   = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    return _mm256_andnot_ps(is_tiny, result);
}

inline float exp_of(float x) { return _mm256_cvtss_f32(exp_of(_mm256_set1_ps(x))); }

inline float sum_of(__m256 x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s        = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

inline float max_of(__m256 x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s        = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// One query, a row's head: what it has seen so far.
struct Query {
    const float * q;      // of the keys' dimensions
    float *       sum;    // of values, by weight: of the values' dimensions
    float         total;  // of weights
    float         most;   // the highest score: weights are e^(score - most)
    float         slope;  // of the mask
    int32_t       row;
    int32_t       low, high;       // the lanes that it sees of the block at hand
    float         weights[BLOCK];  // in the block at hand; first its scores
};

struct Scores {
    float scale;
    float softcap;  // or 0
};

// Turns eight rows of eight floats into columns.
inline void transpose(__m256 (&r)[LANES]) {
    __m256 t[LANES], u[LANES];
    for (int i = 0; i < LANES; i += 2) {
        t[i]     = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        u[i]     = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        r[i]     = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

inline __m256 load(const float * from) { return _mm256_loadu_ps(from); }

inline __m256 load(const ggml_fp16_t * from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
}

// Writes eight rows as columns, one lane of a block for each row.
template <typename T>
void write_columns(const T * const (&rows)[LANES], int64_t n, float * columns) {
    for (int64_t d = 0; d < n; d += LANES) {
        __m256 r[LANES];
        for (int i = 0; i < LANES; i++) {
            r[i] = load(rows[i] + d);
        }
        transpose(r);
        for (int i = 0; i < LANES; i++) {
            _mm256_storeu_ps(columns + (d + i) * BLOCK, r[i]);
        }
    }
}

// Scores of N queries before scaling: `keys` is a block's keys, one row of lanes for each dimension.
template <int N>
void score(Query * const * queries, const float * keys, int64_t n) {
    __m256 sums[N][PARTS];
    for (auto & sum : sums) {
        for (__m256 & part : sum) {
            part = _mm256_setzero_ps();
        }
    }
    for (int64_t d = 0; d < n; d++) {
        __m256 q[N];
        for (int i = 0; i < N; i++) {
            q[i] = _mm256_set1_ps(queries[i]->q[d]);
        }
        for (int part = 0; part < PARTS; part++) {
            const __m256 k = _mm256_loadu_ps(keys + d * BLOCK + part * LANES);
            for (int i = 0; i < N; i++) {
                sums[i][part] = _mm256_fmadd_ps(q[i], k, sums[i][part]);
            }
        }
    }
    for (int i = 0; i < N; i++) {
        for (int part = 0; part < PARTS; part++) {
            _mm256_storeu_ps(queries[i]->weights + part * LANES, sums[i][part]);
        }
    }
}

inline void scale_by(float * x, int64_t n, float factor) {
    const __m256 f = _mm256_set1_ps(factor);
    for (int64_t d = 0; d < n; d += LANES) {
        _mm256_storeu_ps(x + d, _mm256_mul_ps(_mm256_loadu_ps(x + d), f));
    }
}

// Raises a query's highest score to `most`, and scales what it has summed accordingly.
inline void raise(Query & query, float most, int64_t n_values) {
    if (most > query.most) {
        const float factor = exp_of(query.most - most);
        query.most         = most;
        query.total *= factor;
        scale_by(query.sum, n_values, factor);
    }
}

// Turns a block's scores into weights. `mask` has the block's lanes. False if all weights are 0.
inline bool weigh(Query & query, const Scores & scores, const float * mask, int64_t n_values) {
    const __m256 hidden = _mm256_set1_ps(-INFINITY);
    __m256       s[PARTS];
    __m256       most = hidden;
    if (scores.softcap != 0) {
        for (int lane = query.low; lane < query.high; lane++) {
            query.weights[lane] = scores.softcap * tanhf(query.weights[lane] * scores.scale);
        }
    }
    const __m256  scale = _mm256_set1_ps(scores.softcap != 0 ? 1.0f : scores.scale);
    const __m256  slope = _mm256_set1_ps(query.slope);
    const __m256i low = _mm256_set1_epi32(query.low - 1), high = _mm256_set1_epi32(query.high);
    for (int part = 0; part < PARTS; part++) {
        const int     first = part * static_cast<int>(LANES);
        const __m256i lane  = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        const __m256i seen  = _mm256_and_si256(_mm256_cmpgt_epi32(lane, low), _mm256_cmpgt_epi32(high, lane));
        s[part]             = _mm256_mul_ps(_mm256_loadu_ps(query.weights + first), scale);
        s[part]             = _mm256_add_ps(s[part], _mm256_mul_ps(slope, _mm256_loadu_ps(mask + first)));
        s[part]             = _mm256_blendv_ps(hidden, s[part], _mm256_castsi256_ps(seen));
        most                = _mm256_max_ps(most, s[part]);
    }
    raise(query, max_of(most), n_values);
    if (query.most == -INFINITY) {
        return false;
    }
    for (int part = 0; part < PARTS; part++) {
        s[part] = exp_of(_mm256_sub_ps(s[part], _mm256_set1_ps(query.most)));
        _mm256_storeu_ps(query.weights + part * LANES, s[part]);
    }
    query.total += sum_of(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
    return true;
}

// Adds weighted values, of `n` dimensions (a multiple of eight), to the sums of N queries that see the same lanes.
template <int N, int WIDTH>
void add_chunk(Query * const * queries, const float * values, int64_t stride, int64_t first) {
    __m256 sums[N][WIDTH];
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < WIDTH; j++) {
            sums[i][j] = _mm256_loadu_ps(queries[i]->sum + first + j * LANES);
        }
    }
    for (int32_t lane = queries[0]->low; lane < queries[0]->high; lane++) {
        const float * const row = values + lane * stride + first;
        __m256              w[N];
        for (int i = 0; i < N; i++) {
            w[i] = _mm256_set1_ps(queries[i]->weights[lane]);
        }
        for (int j = 0; j < WIDTH; j++) {
            const __m256 v = _mm256_loadu_ps(row + j * LANES);
            for (int i = 0; i < N; i++) {
                sums[i][j] = _mm256_fmadd_ps(w[i], v, sums[i][j]);
            }
        }
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < WIDTH; j++) {
            _mm256_storeu_ps(queries[i]->sum + first + j * LANES, sums[i][j]);
        }
    }
}

template <int N>
void add_values(Query * const * queries, const float * values, int64_t n) {
    int64_t first = 0;
    for (; first + CHUNK <= n; first += CHUNK) {
        add_chunk<N, CHUNK / LANES>(queries, values, n, first);
    }
    for (; first < n; first += LANES) {
        add_chunk<N, 1>(queries, values, n, first);
    }
}

}  // namespace pyg::kernels
#endif
