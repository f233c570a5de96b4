// Replacement for matrix products during a dry run.
#pragma once

#include "kernels/backend/kernel.hpp"

namespace pyg::kernels {

// The kernel that skips `op` in a dry run, or null if it is computed.
Kernel * dry_run_for(const ggml_tensor * op);

}  // namespace pyg::kernels
