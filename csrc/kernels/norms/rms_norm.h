/* In C for upstream_ggml_cpu.c, which has upstream's loop over a graph. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;
struct ggml_tensor;

/* Computes a thread's part of a norm and of the product with weights that follows it, which upstream computes as one.
 * False if upstream has to. */
bool pyg_norm_times_weights(const struct ggml_compute_params * params, const struct ggml_tensor * norm,
                            const struct ggml_tensor * product);

#ifdef __cplusplus
}
#endif
