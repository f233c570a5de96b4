// Systems other than Linux: mapped pages stay in memory, and weights are in memory of the engine's allocator.
#include "ggml-impl.h"
#include "kernels/backend/memory_pages.hpp"

namespace pyg::kernels {

void release_mapped_pages(const void *, size_t) {}

void * allocate_pages(size_t bytes) { return ggml_aligned_malloc(bytes); }

void free_pages(void * begin, size_t bytes) { ggml_aligned_free(begin, bytes); }

}  // namespace pyg::kernels
