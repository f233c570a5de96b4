/* LoRA adapters of the rows of a graph (low_rank.hpp).
 *
 * While a thread computes a batch whose sequences have adapters, it points to their terms. A graph's rows then find
 * their sequences by the KV cells that they write (attention/cell_positions.h). In C because portable builds look it
 * up by name in the variant of ggml's CPU backend that suits the machine. */
#pragma once

#include "kernels/backend/c_api.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Outputs in a tile of B. */
enum { PYG_LORA_TILE = 32 };

/* What one adapter adds to a product of weights (n_inputs, n_outputs): scale * B * (A * x). */
struct pyg_lora_term {
    const void * a; /* rank rows of n_inputs values, of each expert */
    const void * b; /* tiles of PYG_LORA_TILE outputs, each (PYG_LORA_TILE, rank), of each expert; the last padded */
    int32_t      type_a, type_b; /* enum ggml_type: F32, F16 or BF16 */
    int32_t      rank;
    float        scale;
};

struct pyg_row_adapters {
    const int32_t * set_of; /* (n_sequences,) number of a sequence's set of adapters, or -1 */
    int32_t         n_sets;
    /* Point `terms` to what a set adds to products of these weights, in the order of addition. Return their number,
     * often 0. Called by any compute thread. */
    int32_t (*terms)(const void * owner, const struct ggml_tensor * weights, int32_t set,
                     const struct pyg_lora_term ** terms);
    const void * owner;
};

/* The adapters of graphs that this thread computes from now on, or NULL. *Borrowed until the next call.* */
PYG_EXPORTED void pyg_kernels_set_row_adapters(const struct pyg_row_adapters * adapters);

/* For upstream_ggml_cpu.c. */

struct ggml_cgraph;
struct ggml_threadpool;

/* The rows of a graph with adapters, for all its compute threads, or NULL. Called by the thread that computes it. */
const void * pyg_begin_row_adapters(const struct ggml_cgraph * graph);

/* What that returned for the graph that the pool computes. */
const void * pyg_row_adapters_of(const struct ggml_threadpool * pool);

#ifdef __cplusplus
}
#endif
