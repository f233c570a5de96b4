// What takes the place of expensive products while a model is tried.
#pragma once

#include "kernels/backend/kernel.hpp"

namespace pyg::kernels {

// Null outside of trials, and for what a trial computes as it is.
Kernel * trial_for(const ggml_tensor * op);

}  // namespace pyg::kernels
