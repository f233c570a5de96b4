/* The door of this folder, in C because portable builds look it up by name in the variant of ggml's CPU backend that
 * suits the machine. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define PYG_EXPORTED __attribute__((visibility("default")))
#else
#    define PYG_EXPORTED
#endif

/* The name of the type of buffers that have weights in tiles. */
#define PYG_KERNELS_BUFFER_TYPE "CPU_PYGGML"

/* Offers our kernels every node from now on. To be called once, before anybody asks the CPU backend for its buffer
 * types, by one thread. */
PYG_EXPORTED void pyg_kernels_register(void);

struct ggml_tensor;

/* Whether a kernel computes a node such that each row of its result is the same bits whatever else is in the batch. The
 * node may be of a graph that is not allocated yet. Any thread may ask once the kernels are registered. */
PYG_EXPORTED bool pyg_kernels_cover(const struct ggml_tensor * op);

/* From now on, or no longer, products of weights on this thread are not computed: their result is zeros. For what one
 * thread computes of a whole graph. */
PYG_EXPORTED void pyg_kernels_try(bool is_trial);

/* Whether there are kernels for the instruction set that this file is compiled for. */
PYG_EXPORTED bool pyg_kernels_exist(void);

#ifdef __cplusplus
}
#endif
