// Tells our attention (csrc/kernels/) where the cells of a context's caches stand in their sequences.
#pragma once

#include "kernels/attention/cell_positions.h"
#include "llama.h"

#include <vector>

namespace pyg {

// Lets the tensors of keys of all caches in the CPU's memory point to what is returned, which has to live as long as
// the context.
std::vector<pyg_positions> attach_cell_positions(llama_context * context);

}  // namespace pyg
