/* The door of this folder, in C because portable builds look it up by name in the variant of ggml's CPU backend that
 * suits the machine. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* The name of the type of buffers that have weights in tiles. */
#define PYG_KERNELS_BUFFER_TYPE "CPU_PYGGML"

/* Offers our kernels every node from now on. To be called once, before anybody asks the CPU backend for its buffer
 * types, by one thread. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
void pyg_kernels_register(void);

#ifdef __cplusplus
}
#endif
