// Where the cells of a cache stand in their sequences, for attention to take them in that order wherever they lie.
//
// The owner of a cache points `extra` of its tensors of keys to one of these. It must live as long as they do.
#pragma once

#include <stdint.h>

#define PYG_POSITIONS_MAGIC UINT64_C(0x6e6f697469736f71)

struct pyg_positions {
    uint64_t magic;  // PYG_POSITIONS_MAGIC
    // Writes a key for each of the `n` cells listed, of one of the cache's streams: they are taken in the order of
    // their keys. A key's upper 32 bits are the position.
    void (*keys)(const void * cache, int64_t stream, const int32_t * cells, int64_t n, int64_t * keys);
    // Whether the keys of these cells are in order already; 0 where that is too much to find out.
    int (*in_order)(const void * cache, int64_t stream, const int32_t * cells, int64_t n);
    const void * cache;
};
