// Sequences in a context's memory (KV cache or recurrent state).
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

constexpr int32_t ALL_SEQUENCES = -1;

// PYG_ERR_INVALID_PARAMETER if the model has no memory.
llama_memory_t require_memory_of(const Context & context);

}  // namespace pyg
