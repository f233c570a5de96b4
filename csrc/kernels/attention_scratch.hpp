// What a thread keeps while it computes attention, and how cells are told apart.
#pragma once

#include "attention_block.hpp"

#ifdef PYG_ATTENTION
#    include "stored_keys.hpp"

#    include <algorithm>

namespace pyg::kernels {

constexpr int64_t  MAX_ROWS    = 16;      // that share blocks
constexpr int64_t  MAX_QUERIES = 64;      // that share blocks
constexpr int64_t  ALIGNMENT   = 64;      // bytes
constexpr uint16_t HIDDEN      = 0xFC00;  // -inf of f16

struct Placed {
    int64_t key;
    int32_t cell;
};

inline int64_t n_rows_at_once(int64_t n_heads) { return std::clamp<int64_t>(MAX_QUERIES / n_heads, 1, MAX_ROWS); }

// What a thread works with. Made without memory, it only counts how much that is.
struct Scratch {
    float *   keys;     // a block's, by dimension
    float *   values;   // a block's, by lane
    float *   rows;     // eight rows of keys
    float *   queries;  // the sums of each query
    float *   mask;     // a block's, of one row
    int32_t * cells;    // those of the rows at hand
    int32_t * listed;   // those of one row
    int64_t * places;
    Placed *  placed;
    Query *   states;
    char *    zeros;
    size_t    size = 0;

    Scratch(const ggml_tensor * op, char * memory) : memory_(memory) {
        const int64_t n_keys = op->src[1]->ne[0], n_values = op->src[2]->ne[0], n_cells = op->src[1]->ne[1];
        const int64_t n_heads   = op->src[0]->ne[2] / op->src[1]->ne[2];
        const int64_t n_queries = n_rows_at_once(n_heads) * n_heads;
        take(keys, BLOCK * n_keys);
        take(values, BLOCK * n_values);
        take(rows, LANES * n_keys);
        take(queries, n_queries * n_values);
        take(mask, BLOCK);
        take(cells, n_cells);
        take(listed, n_cells);
        take(places, n_cells);
        take(placed, n_cells);
        take(states, n_queries);
        take(zeros, n_keys * static_cast<int64_t>(sizeof(float)));
    }

  private:
    template <typename T>
    void take(T *& part, int64_t n) {
        part = memory_ ? reinterpret_cast<T *>(memory_ + size) : nullptr;
        size += (n * sizeof(T) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }

    char * memory_;
};

// The positions of the cells of a view of a cache, or null.
inline const pyg_positions * positions_of(const ggml_tensor * keys) {
    const ggml_tensor * const view = stored(keys);
    const ggml_tensor * const base = view->view_src;
    if (!base || !base->extra || view->nb[1] != base->nb[1] || view->view_offs >= base->nb[1]) {
        return nullptr;
    }
    return positions_in(base);
}

// Rows of one item of work that see parts of the same list of cells.
struct Rows {
    int64_t first, end;                       // rows
    int64_t low, high;                        // places of the list
    int64_t lows[MAX_ROWS], highs[MAX_ROWS];  // places of each row
};

}  // namespace pyg::kernels
#endif
