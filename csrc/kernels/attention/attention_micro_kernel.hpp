// The arithmetic of attention: what queries make of cells.
//
// A score is the sum of eight partial sums, one for each lane, each of which goes through the dimensions in their
// order. Scores become weights a chunk of cells at a time; a sum of values goes through the cells of a chunk in their
// order, and the sums of chunks are added up in theirs. All that depends on nothing but the row: neither on how many
// queries are computed together, nor on how wide a register is. Cells that a query does not see are never touched by
// its sums.
#pragma once

#include "kernels/attention/vector_math.hpp"

#ifdef PYG_FLOATS8
#    include <algorithm>
#    include <cmath>
#    include <cstring>

namespace pyg::kernels {

constexpr int64_t CHUNK = 128;  // cells that are weighed at once
constexpr int64_t BLOCK = 32;   // cells that are converted at once
constexpr int64_t FOUR  = 4;    // cells that are scored at once

// What has been seen of some cells.
struct Seen {
    float   most;   // the highest score: weights are e^(score - most)
    float   total;  // of weights
    float * sum;    // of values, by weight

    void forget(int64_t n_values) {
        most  = -INFINITY;
        total = 0;
        std::fill_n(sum, n_values, 0.0f);
    }
};

// One query, a row's head.
struct Query {
    const float * q;
    float *       weights;  // of a chunk's cells, at first their scores; room for a BLOCK more
    Seen          chunk;    // of the chunk at hand
    Seen          all;      // of all before
    float         slope;    // of the mask
    int32_t       row, head;
    int32_t       low, high;  // the cells that it sees of the chunk at hand
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
            part = Floats8::everywhere(0);
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
            keep(part[i]);
        }
        for (int j = 0; j < FOUR; ++j) {
            Floats8 k = Floats8::load(key[j] + d);
            keep(k);
            for (int i = 0; i < N; ++i) {
                sums[i][j] = multiply_add(part[i], k, sums[i][j]);
            }
        }
    }
    for (int i = 0; i < N; ++i) {
        store_sums(queries[i]->weights + cell, sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    }
}

// Turns the scores of a chunk into weights. `mask` has the chunk's cells, or is null.
inline void weigh(Query & query, const Scores & scores, const float * mask) {
    constexpr int LANES = Wide::LANES;
    const Wide    scale = Wide::everywhere(scores.scale), slope = Wide::everywhere(query.slope);
    const Wide    cap   = Wide::everywhere(scores.softcap);
    const int     first = query.low / LANES * LANES;
    Wide          most  = Wide::everywhere(-INFINITY);
    for (int i = first; i < query.high; i += LANES) {
        Wide score = Wide::load(query.weights + i) * scale;
        if (scores.softcap != 0) {
            score = cap * tanh_of(score);
        }
        if (mask) {
            score = multiply_add(slope, Wide::load(mask + i), score);
        }
        if (i < query.low || i + LANES > query.high) {
            score = within(score, query.low - i, query.high - i);
        }
        most = larger(score, most);
        score.store(query.weights + i);
    }
    query.chunk.most  = largest_of(most);
    query.chunk.total = 0;
    if (query.chunk.most == -INFINITY) {
        query.high = query.low;  // as if it saw nothing
        return;
    }
    most          = Wide::everywhere(query.chunk.most);
    Floats8 total = Floats8::everywhere(0);
    for (int i = first; i < query.high; i += LANES) {
        const Wide weight = exp_of(Wide::load(query.weights + i) - most);
        weight.store(query.weights + i);
        total = add_to(total, weight);
    }
    query.chunk.total = sum_of(total);
}

// Adds the values of cells `low` up to `high`, by weight, to WIDTH vectors of the sums of N queries.
template <int N, int WIDTH, typename Vector, typename Number>
void add_slab(Query * const * queries, const Number * const * values, int64_t low, int64_t high, int64_t first) {
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
            const Vector weight = Vector::everywhere(weights[i][cell]);
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
    for (; first + WIDTH * Wide::LANES <= n; first += WIDTH * Wide::LANES) {
        add_slab<N, WIDTH, Wide>(queries, values, low, high, first);
    }
    for (; first + 2 * Wide::LANES <= n; first += 2 * Wide::LANES) {
        add_slab<N, 2, Wide>(queries, values, low, high, first);
    }
    for (; first < n; first += Floats8::LANES) {
        add_slab<N, 1, Floats8>(queries, values, low, high, first);
    }
}

// Adds what was seen of the next chunk of cells to what was seen before.
inline void merge(Seen & all, const Seen & next, int64_t n) {
    if (next.most == -INFINITY) {
        return;
    }
    const float most   = next.most > all.most ? next.most : all.most;
    const float before = exp_of(all.most - most), now = exp_of(next.most - most);
    all.most  = most;
    all.total = std::fma(next.total, now, all.total * before);
    for (int64_t i = 0; i < n; i += Floats8::LANES) {
        const Floats8 scaled = Floats8::load(all.sum + i) * Floats8::everywhere(before);
        multiply_add(Floats8::load(next.sum + i), Floats8::everywhere(now), scaled).store(all.sum + i);
    }
}

}  // namespace pyg::kernels
#endif
