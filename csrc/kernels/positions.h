// Where the cells of a cache stand in their sequences, for attention to take them in that order wherever they lie.
//
// The owner of a cache points `extra` of its tensors of keys to one of these. It must live as long as they do.
#pragma once

#include <stdint.h>

#define PYG_POSITIONS_MAGIC UINT64_C(0x6e6f697469736f70)

struct pyg_positions {
    uint64_t magic;  // PYG_POSITIONS_MAGIC
    // Writes a key for each of the `n` cells listed: they are taken in the order of their keys. A key's upper 32 bits
    // are the position.
    void (*keys)(const void * cache, const int32_t * cells, int64_t n, int64_t * keys);
    const void * cache;
};
