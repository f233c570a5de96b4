// Memory pages of weights: allocation, and release of mapped files.
#pragma once

#include <cstddef>

namespace pyg::kernels {

// Release the whole pages of [from, from + bytes) if they are mapped from a file, so that packed weights are not in
// memory twice. They can still be read, from the file or the page cache. Other memory is not changed.
void release_mapped_pages(const void * from, size_t bytes);

// Allocate memory for weights; null if there is none. It uses huge pages where the system has them, for fewer page
// faults and TLB misses. It is mapped rather than taken from malloc, whose memory would keep the huge-page advice after
// it is freed.
void * allocate_pages(size_t bytes);
void   free_pages(void * begin, size_t bytes);

}  // namespace pyg::kernels
