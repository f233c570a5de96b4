// Attention micro-kernels: scores, online softmax, weighted sums of values.
//
// A score is the sum of eight partial sums, one per lane, each over the dimensions in order. Softmax runs a chunk of
// cells at a time; values are added in order of the cells, and chunks are merged in order. The bits depend on the row
// alone: neither on the number of queries computed together nor on the register width. Masked cells never enter a sum.
#pragma once

#include "kernels/simd/vector_math.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pyg::kernels {

constexpr int64_t CHUNK = 128;  // cells per softmax step
constexpr int64_t BLOCK = 32;   // cells converted to float at once
constexpr int64_t FOUR  = 4;    // cells scored at once

// Online softmax over some cells.
struct SoftmaxState {
    float   most;   // the highest score: weights are e^(score - most)
    float   total;  // of weights
    float * sum;    // of values, by weight

    void reset(int64_t n_values) {
        most  = -INFINITY;
        total = 0;
        std::fill_n(sum, n_values, 0.0f);
    }
};

// One query, a row's head.
struct Query {
    const float * q;
    float *       weights;  // of a chunk's cells, at first their scores; BLOCK more are allocated
    SoftmaxState  chunk;    // of the current chunk
    SoftmaxState  all;      // of all chunks before
    float         slope;    // of the mask
    int32_t       row, head;
    int32_t       low, high;  // the cells that it sees of the current chunk
};

struct Scores {
    float scale;
    float softcap;  // or 0
};

// Scores of N queries for four cells, from `cell` on.
template <int N, typename Number>
void score_four(Query * const * queries, const Number * const * keys, int64_t n, int64_t cell) {
    Floats8 sums[N][FOUR];
    for (auto & sum : sums) {
        for (Floats8 & part : sum) {
            part = Floats8::set1(0);
        }
    }
    const Number * const key[FOUR] = {keys[0], keys[1], keys[2], keys[3]};
    const float *        q[N];
    for (int i = 0; i < N; ++i) {
        q[i] = queries[i]->q;
    }
    for (int64_t d = 0; d < n; d += Floats8::LANES) {
        Floats8 part[N];
        for (int i = 0; i < N; ++i) {
            part[i] = Floats8::load(q[i] + d);
            keep_in_register(part[i]);
        }
        for (int j = 0; j < FOUR; ++j) {
            Floats8 k = Floats8::load(key[j] + d);
            keep_in_register(k);
            for (int i = 0; i < N; ++i) {
                sums[i][j] = multiply_add(part[i], k, sums[i][j]);
            }
        }
    }
    for (int i = 0; i < N; ++i) {
        store_reduced(queries[i]->weights + cell, sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    }
}

// Softmax of a chunk: scores become weights. `mask` has the chunk's cells, or is null.
inline void softmax_chunk(Query & query, const Scores & scores, const float * mask) {
    constexpr int    LANES = WideFloats::LANES;
    const WideFloats scale = WideFloats::set1(scores.scale), slope = WideFloats::set1(query.slope);
    const WideFloats cap   = WideFloats::set1(scores.softcap);
    const int        first = query.low / LANES * LANES;
    WideFloats       most  = WideFloats::set1(-INFINITY);
    for (int i = first; i < query.high; i += LANES) {
        WideFloats score = WideFloats::load(query.weights + i) * scale;
        if (scores.softcap != 0) {
            score = cap * tanh_approx(score);
        }
        if (mask) {
            score = multiply_add(slope, WideFloats::load(mask + i), score);
        }
        if (i < query.low || i + LANES > query.high) {
            score = keep_lanes(score, query.low - i, query.high - i);
        }
        most = max_of(score, most);
        score.store(query.weights + i);
    }
    query.chunk.most  = reduce_max(most);
    query.chunk.total = 0;
    if (query.chunk.most == -INFINITY) {
        query.high = query.low;  // no visible cell
        return;
    }
    most          = WideFloats::set1(query.chunk.most);
    Floats8 total = Floats8::set1(0);
    for (int i = first; i < query.high; i += LANES) {
        const WideFloats weight = exp_approx(WideFloats::load(query.weights + i) - most);
        weight.store(query.weights + i);
        total = add_to(total, weight);
    }
    query.chunk.total = reduce_add(total);
}

// Add the weighted values of cells [low, high) to WIDTH vectors of the sums of N queries.
template <int N, int WIDTH, typename Vector, typename Number>
void add_value_slab(Query * const * queries, const Number * const * values, int64_t low, int64_t high, int64_t first) {
    Vector        sums[N][WIDTH];
    const float * weights[N];
    for (int i = 0; i < N; ++i) {
        weights[i] = queries[i]->weights;
        for (int j = 0; j < WIDTH; ++j) {
            sums[i][j] = Vector::load(queries[i]->chunk.sum + first + j * Vector::LANES);
        }
    }
    for (int64_t cell = low; cell < high; ++cell) {
        const Number * const row = values[cell] + first;
        Vector               v[WIDTH];
        for (int j = 0; j < WIDTH; ++j) {
            v[j] = Vector::load(row + j * Vector::LANES);
        }
        for (int i = 0; i < N; ++i) {
            const Vector weight = Vector::set1(weights[i][cell]);
            for (int j = 0; j < WIDTH; ++j) {
                sums[i][j] = multiply_add(weight, v[j], sums[i][j]);
            }
        }
    }
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < WIDTH; ++j) {
            sums[i][j].store(queries[i]->chunk.sum + first + j * Vector::LANES);
        }
    }
}

template <int N, typename Number>
void add_values(Query * const * queries, const Number * const * values, int64_t n, int64_t low, int64_t high) {
    constexpr int WIDTH = N == 1 && MANY_REGISTERS ? 8 : 4;
    int64_t       first = 0;
    if (low >= high) {
        return;
    }
    for (; first + WIDTH * WideFloats::LANES <= n; first += WIDTH * WideFloats::LANES) {
        add_value_slab<N, WIDTH, WideFloats>(queries, values, low, high, first);
    }
    for (; first + 2 * WideFloats::LANES <= n; first += 2 * WideFloats::LANES) {
        add_value_slab<N, 2, WideFloats>(queries, values, low, high, first);
    }
    for (; first < n; first += Floats8::LANES) {
        add_value_slab<N, 1, Floats8>(queries, values, low, high, first);
    }
}

// Merge the softmax of the next chunk into that of the chunks before.
inline void merge(SoftmaxState & all, const SoftmaxState & next, int64_t n) {
    if (next.most == -INFINITY) {
        return;
    }
    const float most   = next.most > all.most ? next.most : all.most;
    const float before = exp_approx(all.most - most), now = exp_approx(next.most - most);
    all.most  = most;
    all.total = std::fma(next.total, now, all.total * before);
    for (int64_t i = 0; i < n; i += Floats8::LANES) {
        const Floats8 scaled = Floats8::load(all.sum + i) * Floats8::set1(before);
        multiply_add(Floats8::load(next.sum + i), Floats8::set1(now), scaled).store(all.sum + i);
    }
}

}  // namespace pyg::kernels
