// Attention of each row to its sequence's own cells, in order of position.
#include "kernel.hpp"

namespace pyg::kernels {

Kernel * attention_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels
