// One forward pass, and what its failures mean.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// What llama_decode and llama_encode return, as documented in llama.h.
enum ForwardResult : int32_t { COMPUTED = 0, NO_CELLS = 1, ABORTED = 2, INVALID_BATCH = -1, NO_MEMORY = -2 };

using Pass = int32_t (*)(llama_context *, llama_batch);

// Runs a batch and waits for its end. Throws EngineAbort if the engine throws: backends leave a graph half recorded.
// PYG_ERR_HOST_LOST before anything else; PYG_ERR_ENGINE as Model::require_files.
int32_t compute(Context & context, const llama_batch & batch, Pass pass);

// What an answer means that the caller has no use for.
Failure compute_error(int32_t status);

// Where a model is computed. Devices here are those with a memory of their own or a driver between, not the CPU.
struct DeviceUse {
    bool any_on_device;     // of the layers and the output
    bool all_on_devices;    // what is left to the CPU is to look up embeddings
    bool output_on_device;  // which the logits have to leave
    bool pipelined;         // several devices, each with another micro-batch of the same batch
};

DeviceUse device_use_of(const llama_context * context);

}  // namespace pyg
