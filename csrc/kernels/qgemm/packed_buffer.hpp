// Weights that lie in tiles (pack.hpp) have buffers of a type of their own. They are laid out as they are loaded.
#pragma once

#include "ggml-backend-impl.h"

namespace pyg::kernels {

// Whether this CPU's kernels multiply weights of such a type and shape in tiles. See mul_mat_quantized.cpp.
bool can_be_tiled(const ggml_tensor * weights);

// Whether they lie in tiles.
bool is_tiled(const ggml_tensor * weights);

// Whether the operation takes its weights from tiles: where they are to be is for whoever loads a model to ask.
bool takes_tiles(const ggml_tensor * op);

// The buffer type, with what ggml calls the context of it.
ggml_backend_buffer_type_t tiled_buffer_type(void * context);

}  // namespace pyg::kernels
