// Positions of KV cells, for our attention kernel (csrc/kernels/).
#pragma once

#include "kernels/attention/cell_positions.h"
#include "llama.h"

#include <vector>

namespace pyg {

// Attach the cell positions to the K tensors of all KV caches in main memory. The result must live as long as the
// context.
std::vector<pyg_positions> attach_cell_positions(llama_context * context);

}  // namespace pyg
