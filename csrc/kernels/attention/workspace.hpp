// The memory that attention works in: what threads share, and what each has of its own.
#pragma once

#include "kernels/attention/attention_micro_kernel.hpp"

#ifdef PYG_FLOATS8

namespace pyg::kernels {

constexpr int64_t MAX_ROWS    = 16;       // that share keys and values
constexpr int64_t MAX_QUERIES = 64;       // that share keys and values
constexpr int64_t LIST_BYTES  = 8 << 20;  // for lists of cells, and for parts of results, unless one needs more
constexpr int64_t ALIGNMENT   = 64;

inline int64_t divided(int64_t n, int64_t by) { return (n + by - 1) / by; }

struct Sizes {
    int64_t n_keys, n_values;  // dimensions
    int64_t n_cells;
    int64_t n_rows;    // of all streams
    int64_t n_listed;  // rows whose cells are listed at once
    int64_t n_heads;   // of queries, in all
    int64_t n_groups;  // heads of keys
    int64_t n_shared;  // heads of queries for each head of keys
    int64_t n_parts;   // that these are cut into
    int64_t n_joint;   // heads of such a part, a set
    int64_t n_sets;
    int64_t n_floats;  // of a part of a result
    int64_t n_kept;    // parts of results

    explicit Sizes(const ggml_tensor * op) {
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
        n_keys   = k->ne[0];
        n_values = v->ne[0];
        n_cells  = k->ne[1];
        n_rows   = q->ne[1] * q->ne[3];
        n_heads  = q->ne[2];
        n_groups = k->ne[2];
        n_shared = n_heads / n_groups;
        n_parts  = divided(n_shared, MAX_QUERIES);
        n_joint  = divided(n_shared, n_parts);
        n_sets   = n_groups * n_parts;
        n_listed = std::min(std::max(LIST_BYTES / (n_cells * int64_t(sizeof(int32_t))), MAX_ROWS), n_rows);
        n_floats = divided(n_values, 16) * 16 + 16;
        // enough for all chunks of one row, and a few more for each of a few rows
        n_kept = n_heads * (divided(n_cells, CHUNK) + 64);
        n_kept = std::min(n_kept, std::max(LIST_BYTES / (n_floats * int64_t(sizeof(float))), n_heads));
    }

    int64_t first_head_of(int64_t set) const { return set / n_parts * n_shared + set % n_parts * n_joint; }
    int64_t n_heads_of(int64_t set) const { return std::min(n_joint, n_shared - set % n_parts * n_joint); }

    // Rows that may share keys and values.
    int64_t n_joint_rows() const { return std::clamp<int64_t>(MAX_QUERIES / n_joint, 1, MAX_ROWS); }
};

// Memory that is handed out piece by piece. Without any, only the size is counted.
class Memory {
  public:
    explicit Memory(char * start) : start_(start) {}

    template <typename T>
    void take(T *& piece, int64_t n) {
        piece = start_ ? reinterpret_cast<T *>(start_ + size_) : nullptr;
        size_ += divided(n * static_cast<int64_t>(sizeof(T)), ALIGNMENT) * ALIGNMENT;
    }

    int64_t size() const { return size_; }

  private:
    char *  start_;
    int64_t size_ = 0;
};

// The places of a sequence whose cells a row sees.
struct Span {
    int64_t low, high;
    bool    biased;  // whether its mask has anything but 0 for them
};

// Rows that follow one another and see parts of the same list of cells.
struct Rows {
    int64_t         first, end;
    int64_t         low, high;  // places of the list
    const int32_t * cells;      // by place, from `low` on

    int64_t first_chunk() const { return low / CHUNK; }
    int64_t n_chunks() const { return low == high ? 0 : divided(high, CHUNK) - first_chunk(); }
};

// What threads share. Rows are counted from the first of those that are listed.
struct Shared {
    Rows *    rows;   // at the place of their first row; others are empty
    Span *    spans;  // of each row
    int32_t * cells;  // room for the list of each row
    float *   parts;  // of results: the highest score and the total of weights, then after 16 floats the sum of values
    int64_t   n_floats;
    int64_t   size;

    Shared(const Sizes & sizes, char * start) : n_floats(sizes.n_floats) {
        Memory memory(start);
        memory.take(rows, sizes.n_listed);
        memory.take(spans, sizes.n_listed);
        memory.take(cells, sizes.n_listed * sizes.n_cells);
        memory.take(parts, sizes.n_kept * sizes.n_floats);
        size = memory.size();
    }

    float * part(int64_t index) const { return parts + index * n_floats; }
};

struct Placed {
    int64_t key;
    int32_t cell;
};

// What a thread has of its own.
struct Scratch {
    float *       numbers;  // a block's keys or values
    float *       columns;  // a block's keys, by dimension
    float *       weights;  // of each query
    float *       sums;     // two of each query
    float *       mask;     // a chunk's, of one row
    const char ** found;    // where a chunk's keys or values lie
    Query *       queries;
    int32_t *     listed;  // the cells of a row
    int64_t *     order;   // of these cells
    Placed *      placed;
    int64_t       size;

    Scratch(const Sizes & sizes, char * start) {
        const int64_t n_queries = std::max(MAX_QUERIES, sizes.n_joint);
        Memory        memory(start);
        memory.take(numbers, BLOCK * std::max(sizes.n_keys, sizes.n_values));
        memory.take(columns, BLOCK * sizes.n_keys);
        memory.take(weights, n_queries * (CHUNK + BLOCK));
        memory.take(sums, n_queries * 2 * sizes.n_values);
        memory.take(mask, CHUNK);
        memory.take(found, CHUNK);
        memory.take(queries, n_queries);
        memory.take(listed, sizes.n_cells);
        memory.take(order, sizes.n_cells);
        memory.take(placed, sizes.n_cells);
        size = memory.size();
    }
};

}  // namespace pyg::kernels
#endif
