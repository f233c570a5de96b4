#include "checked_memory.h"

#include <new>

ggml_backend_buffer_t pyg_buffer_or_null(ggml_backend_buffer_type_t type, size_t n_bytes) {
    try {
        return ggml_backend_buft_alloc_buffer(type, n_bytes);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}
