// A context's memory of sequences.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

constexpr int32_t ALL_SEQUENCES = -1;  // sequence

// PYG_ERR_INVALID_PARAMETER if the model keeps none.
llama_memory_t require_memory_of(const Context & context);

}  // namespace pyg
