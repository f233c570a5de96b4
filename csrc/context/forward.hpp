// A forward pass, and the meaning of its failures.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// Results of llama_decode and llama_encode, as documented in llama.h.
enum ForwardResult : int32_t { COMPUTED = 0, NO_CELLS = 1, ABORTED = 2, INVALID_BATCH = -1, NO_MEMORY = -2 };

// A llama_batch and the arrays it points to: one sequence for each token.
class BatchArrays {
  public:
    void clear() {
        token_ids_.clear();
        positions_.clear();
        seq_ids_.clear();
        outputs_.clear();
    }

    // `seq_id` must live as long as the batch.
    void add(llama_token id, llama_pos position, llama_seq_id * seq_id, bool has_output) {
        token_ids_.push_back(id);
        positions_.push_back(position);
        seq_ids_.push_back(seq_id);
        outputs_.push_back(has_output);
    }

    int32_t n_tokens() const { return static_cast<int32_t>(token_ids_.size()); }

    // *borrowed until the next change*
    llama_batch raw() {
        n_seq_ids_.assign(token_ids_.size(), 1);
        return {static_cast<int32_t>(token_ids_.size()),
                token_ids_.data(),
                nullptr,
                positions_.data(),
                n_seq_ids_.data(),
                seq_ids_.data(),
                outputs_.data()};
    }

  private:
    std::vector<llama_token>    token_ids_;
    std::vector<llama_pos>      positions_;
    std::vector<int32_t>        n_seq_ids_;
    std::vector<llama_seq_id *> seq_ids_;
    std::vector<int8_t>         outputs_;
};

using Pass = int32_t (*)(llama_context *, llama_batch);

// Run a batch and wait for its end. Throws EngineAbort if the engine throws, because backends leave a graph half
// recorded. PYG_ERR_HOST_LOST before anything else; PYG_ERR_ENGINE as Model::require_files.
int32_t compute(Context & context, const llama_batch & batch, Pass pass);

// Let upstream plan the graphs of the next batch now, if something has changed that they depend on.
// PYG_ERR_OUT_OF_MEMORY: scratch buffers do not fit; the next batch tries again. PYG_ERR_HOST_LOST, and EngineAbort as
// compute().
void plan_graphs(Context & context);

// Of the last compute(), by index in the batch: its row of logits, or the token that a device sampled. compute() has
// waited, so these do not: llama_get_logits_ith waits for the device each time, which takes microseconds per row even
// if nothing is running. Null, and LLAMA_TOKEN_NULL, if there is none.
float *     logits_of_last(Context & context, int32_t index);
llama_token sampled_token_of_last(Context & context, int32_t index);

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

// Return true if a device, null for the CPU, computes on the CPU in main memory.
bool computes_on_cpu(ggml_backend_dev_t device);

}  // namespace pyg
