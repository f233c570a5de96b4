// A forward pass, and the meaning of its failures.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// Results of llama_decode and llama_encode, as documented in llama.h.
enum ForwardResult : int32_t { COMPUTED = 0, NO_CELLS = 1, ABORTED = 2, INVALID_BATCH = -1, NO_MEMORY = -2 };

using Pass = int32_t (*)(llama_context *, llama_batch);

// Run a batch and wait for its end. Throws EngineAbort if the engine throws, because backends leave a graph half
// recorded. PYG_ERR_HOST_LOST before anything else; PYG_ERR_ENGINE as Model::require_files.
int32_t compute(Context & context, const llama_batch & batch, Pass pass);

// Error for a result that the caller does not handle.
Failure compute_error(int32_t status);

// Devices that compute a model: those with their own memory or a driver, not the CPU.
struct DeviceUse {
    bool any_on_device;     // of the layers and the output
    bool all_on_devices;    // the CPU only looks up embeddings
    bool output_on_device;  // logits have to be copied from it
    bool pipelined;         // several devices compute different micro-batches of a batch at once
};

DeviceUse device_use_of(const llama_context * context);

}  // namespace pyg
