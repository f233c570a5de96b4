// Operations of a context whose results may depend on the other rows of a batch.
#pragma once

#include "boundary/handles.hpp"

#include <set>
#include <string>

namespace pyg {

// Names of such operations, with the types they read and devices other than the CPU, such as "MUL_MAT q4_K on CUDA0".
// Empty if every batch of the context is batch-invariant. Not during a decode.
std::set<std::string> not_batch_invariant(Context & context);

}  // namespace pyg
