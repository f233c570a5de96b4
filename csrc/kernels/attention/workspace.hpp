// Workspace of attention: memory that threads share, and memory of each thread.
#pragma once

#include "kernels/attention/attention_micro_kernel.hpp"
#include "kernels/backend/kernel.hpp"

namespace pyg::kernels {

constexpr int64_t MAX_QUERIES = 64;       // that share keys and values; so many rows at most
constexpr int64_t LIST_BYTES  = 8 << 20;  // of lists of cells, and of partial results, unless one needs more

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
    int64_t n_floats;      // of a part of a result
    int64_t max_partials;  // partial results

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
        n_listed = std::min(std::max(LIST_BYTES / (n_cells * int64_t(sizeof(int32_t))), MAX_QUERIES), n_rows);
        n_floats = divided(n_values, 16) * 16 + 16;
        // enough for all chunks of one row, and a few more for each of a few rows
        max_partials = n_heads * (divided(n_cells, CHUNK) + 64);
        max_partials = std::min(max_partials, std::max(LIST_BYTES / (n_floats * int64_t(sizeof(float))), n_heads));
    }

    int64_t first_head_of(int64_t set) const { return set / n_parts * n_shared + set % n_parts * n_joint; }
    int64_t n_heads_of(int64_t set) const { return std::min(n_joint, n_shared - set % n_parts * n_joint); }

    // Number of rows that may share keys and values.
    int64_t group_rows() const { return std::max<int64_t>(MAX_QUERIES / n_joint, 1); }
};

// Allocates arrays from a workspace. Without a workspace it only counts the size.
class WorkspaceAllocator {
  public:
    explicit WorkspaceAllocator(char * start) : start_(start) {}

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

// The indices of the cells that a row sees.
struct Span {
    int64_t low, high;
    bool    biased;  // whether its mask has other values than 0 for them
};

// Consecutive rows that see parts of the same list of cells.
struct RowGroup {
    int64_t         first, end;
    int64_t         low, high;  // indices of the list
    const int32_t * cells;      // by index, from `low` on

    int64_t first_chunk() const { return low / CHUNK; }
    int64_t n_chunks() const { return low == high ? 0 : divided(high, CHUNK) - first_chunk(); }
};

// Memory that threads share. Rows are counted from the first listed one.
struct Shared {
    RowGroup * rows;   // at their first row; others are empty
    Span *     spans;  // of each row
    int32_t *  cells;  // the list of each row
    float * partials;  // of results: the highest score and the total of weights, then after 16 floats the sum of values
    int64_t n_floats;
    int64_t size;

    Shared(const Sizes & sizes, char * start) : n_floats(sizes.n_floats) {
        WorkspaceAllocator memory(start);
        memory.take(rows, sizes.n_listed);
        memory.take(spans, sizes.n_listed);
        memory.take(cells, sizes.n_listed * sizes.n_cells);
        memory.take(partials, sizes.max_partials * sizes.n_floats);
        size = memory.size();
    }

    float * part(int64_t index) const { return partials + index * n_floats; }
};

struct KeyedCell {
    int64_t key;
    int32_t cell;
};

// Memory of one thread.
struct Scratch {
    float *       numbers;   // a block's keys or values
    float *       columns;   // a block's keys, by dimension
    float *       weights;   // of each query
    float *       sums;      // two of each query
    float *       mask;      // a chunk's, of one row
    const char ** pointers;  // addresses of a chunk's keys or values
    Query *       queries;
    int32_t *     listed;  // the cells of a row
    int64_t *     order;   // of these cells
    KeyedCell *   keyed;
    int64_t       size;

    Scratch(const Sizes & sizes, char * start) {
        const int64_t      n_queries = std::max(MAX_QUERIES, sizes.n_joint);
        WorkspaceAllocator memory(start);
        memory.take(numbers, BLOCK * std::max(sizes.n_keys, sizes.n_values));
        memory.take(columns, BLOCK * sizes.n_keys);
        memory.take(weights, n_queries * (CHUNK + BLOCK));
        memory.take(sums, n_queries * 2 * sizes.n_values);
        memory.take(mask, CHUNK);
        memory.take(pointers, CHUNK);
        memory.take(queries, n_queries);
        memory.take(listed, sizes.n_cells);
        memory.take(order, sizes.n_cells);
        memory.take(keyed, sizes.n_cells);
        size = memory.size();
    }
};

}  // namespace pyg::kernels
