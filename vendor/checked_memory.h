/* Included before upstream's files that do not check the result of malloc(): when an allocation fails, an assert fails
 * with a message that csrc/boundary/engine_messages.cpp recognises, instead of a write to address 0.
 *
 * Upstream would end the process then; here the owners free their objects. So a pointer that is freed to be allocated
 * again must be cleared, or it would be freed twice if that allocation fails. (Not done in two places that only
 * contexts over several backends reach: the capacity of a scheduler's splits, and buffers shared by two types.)
 */
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
#    include <cstdlib>
#    include <locale>  // calls std::realloc in libc++
#endif

static inline void * pyg_checked(void * memory, size_t n_bytes, const char * function, const char * file, int line) {
    if (!memory && n_bytes > 0 && strcmp(function, "ggml_vbuffer_alloc") != 0) {  // checks by itself
        ggml_abort(file, line, "out of memory: %zu bytes could not be had", n_bytes);
    }
    return memory;
}

#define malloc(n_bytes) pyg_checked(malloc(n_bytes), (n_bytes), __func__, __FILE__, __LINE__)
#define calloc(n, n_bytes) pyg_checked(calloc(n, n_bytes), (n_bytes), __func__, __FILE__, __LINE__)
#define realloc(old, n_bytes) pyg_checked(realloc(old, n_bytes), (n_bytes), __func__, __FILE__, __LINE__)

/* Return a buffer, or NULL where upstream's function throws std::bad_alloc, which its callers in C do not expect. */
#ifdef __cplusplus
extern "C"
#endif
    ggml_backend_buffer_t
    pyg_buffer_or_null(ggml_backend_buffer_type_t type, size_t n_bytes);

#ifdef __cplusplus
#    define ggml_free(context)                                                                                         \
        do {                                                                                                           \
            ggml_free(context);                                                                                        \
            (context) = nullptr;                                                                                       \
        } while (0)
#else
#    define free(pointer)                                                                                              \
        do {                                                                                                           \
            free(pointer);                                                                                             \
            (pointer) = NULL;                                                                                          \
        } while (0)

#    define ggml_backend_buft_alloc_buffer pyg_buffer_or_null
#endif
