// What the system is told about the pages of memory that weights are read from and written to.
#pragma once

#include <cstddef>

namespace pyg::kernels {

// Lets go of the whole pages of [from, from + bytes) if they are shared with a file, as those of a model's file are, so
// that weights which have been copied elsewhere are not counted twice. They can be read as before: from the file, which
// the system usually still has in memory. Other memory stays as it is.
void let_go_of_mapped(const void * from, size_t bytes);

// Asks for large pages: fewer have to be made, and fewer are looked up while weights are read.
void prefer_large_pages(void * begin, size_t bytes);

}  // namespace pyg::kernels
