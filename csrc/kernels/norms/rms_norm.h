/* C entry point for upstream_ggml_cpu.c, which has upstream's loop over a graph. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;
struct ggml_tensor;

/* Compute a thread's part of a norm fused with the multiplication by weights. Return false to leave it to upstream. */
bool pyg_norm_times_weights(const struct ggml_compute_params * params, const struct ggml_tensor * norm,
                            const struct ggml_tensor * product);

#ifdef __cplusplus
}
#endif
