// What the system is told about the pages of memory that weights are read from and written to.
#pragma once

#include <cstddef>

namespace pyg::kernels {

// Lets go of the whole pages of [from, from + bytes) if they are shared with a file, as those of a model's file are, so
// that weights which have been copied elsewhere are not counted twice. They can be read as before: from the file, which
// the system usually still has in memory. Other memory stays as it is.
void let_go_of_mapped(const void * from, size_t bytes);

// Memory for weights, or null if there is none. Where the system has large pages it is made of them: fewer have to be
// made, and fewer are looked up while weights are read. It is nobody else's before or after: memory of malloc would
// stay marked for large pages, and the system go on filling what the program has given back of it.
void * take_pages(size_t bytes);
void   give_back_pages(void * begin, size_t bytes);

}  // namespace pyg::kernels
