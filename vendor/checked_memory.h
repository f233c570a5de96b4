/* Read before upstream's files that use what malloc() returns without looking at it: where there is no memory, a check
 * fails, with words that are understood as that (csrc/boundary/engine_words.cpp), and nothing is written to address 0.
 */
#pragma once

#include "ggml.h"

#include <stdlib.h>
#ifdef __cplusplus
#    include <cstdlib>
#endif

static inline void * pyg_checked(void * memory, size_t n_bytes, const char * file, int line) {
    if (!memory && n_bytes > 0) {
        ggml_abort(file, line, "out of memory: %zu bytes could not be had", n_bytes);
    }
    return memory;
}

#define malloc(n_bytes) pyg_checked(malloc(n_bytes), (n_bytes), __FILE__, __LINE__)
#define calloc(n, n_bytes) pyg_checked(calloc(n, n_bytes), (n_bytes), __FILE__, __LINE__)
#define realloc(old, n_bytes) pyg_checked(realloc(old, n_bytes), (n_bytes), __FILE__, __LINE__)
