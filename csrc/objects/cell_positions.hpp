// Tells our attention (csrc/kernels/) where the cells of a context's caches stand in their sequences.
#pragma once

#include "kernels/positions.h"
#include "llama.h"

#include <vector>

namespace pyg {

// Lets the caches' tensors point to what is returned, which has to live as long as the context. Only caches in the
// CPU's memory whose sequences share their cells are told of: in others, each sequence has its own cells.
std::vector<pyg_positions> offer_positions(llama_context * context);

}  // namespace pyg
