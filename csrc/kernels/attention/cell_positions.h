// Positions of KV cache cells, so that attention reads cells in order of position wherever they are in the cache, and
// their sequences.
//
// The owner of a cache points `extra` of its key tensors to this struct, which must outlive them.
#pragma once

#include <stdint.h>

#define PYG_POSITIONS_MAGIC UINT64_C(0x6e6f697469736f71)

struct pyg_positions {
    uint64_t magic;  // PYG_POSITIONS_MAGIC
    // Write a sort key for each of the `n` listed cells of a stream. Its upper 32 bits are the position.
    void (*keys)(const void * cache, int64_t stream, const int32_t * cells, int64_t n, int64_t * keys);
    // Non-zero if the keys of these cells are known to be sorted.
    int (*in_order)(const void * cache, int64_t stream, const int32_t * cells, int64_t n);
    const void * cache;
    // The sequence of a cell that one sequence has; cells are numbered over all streams.
    int32_t (*sequence)(const void * cache, int64_t cell);
};
