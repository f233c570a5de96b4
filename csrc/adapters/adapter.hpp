// LoRA adapters of a model: read, validated, and shared by the requests that use them.
#pragma once

#include "boundary/handles.hpp"
#include "kernels/lora/row_adapters.h"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct llama_adapter_lora;

namespace pyg {

// Weights that an adapter changes: W + scale * B * A.
struct AdapterTarget {
    const ggml_tensor * weights;  // of the model
    const ggml_tensor * a;        // (n_inputs, rank), of each expert
    const ggml_tensor * b;        // (rank, n_outputs), of each expert
};

class Adapter : NonCopyable {
  public:
    // Read a GGUF file. PYG_ERR_MODEL_NOT_FOUND; PYG_ERR_MODEL_LOAD: not an adapter, damaged, of a kind that is not
    // supported, or with values that are not finite; PYG_ERR_ARCH_MISMATCH: of another model; PYG_ERR_OUT_OF_MEMORY.
    Adapter(std::shared_ptr<Model> model, const std::string & path);
    ~Adapter();

    const Model &        model() const { return *model_; }
    const std::string &  path() const { return path_; }
    llama_adapter_lora * raw() const { return raw_.get(); }    // *borrowed while this lives*
    float                alpha() const { return alpha_; }      // 0: the file has none, and B * A is not scaled
    int32_t              rank() const { return rank_; }        // the largest
    uint64_t             content() const { return content_; }  // hash of the tensors and alpha
    uint64_t             n_bytes() const;                      // of the tensors, also of packed copies

    const std::vector<AdapterTarget> & targets() const { return targets_; }

    // Copy the B of targets in main memory to tiles, once. Any thread.
    void pack();
    // What the kernels add to products of a target's weights; after pack().
    pyg_lora_term term(size_t target, float scale) const;

    // --- uses by requests, any thread ---
    void begin_use();  // PYG_ERR_CLOSED once it is closing
    void end_use() noexcept;
    // Refuse new uses, and wait until there is none, up to `timeout_s` (negative: no limit). Return false if there is.
    // PYG_ERR_INVALID_PARAMETER: it is in use, and this thread runs a logits callback, so it stays open; or another
    // thread has been running one for some seconds, which may wait for this thread.
    bool close(double timeout_s);

  private:
    void read(const std::string & path);

    struct Free {
        Model * model;
        void    operator()(llama_adapter_lora * raw) const;
    };

    const std::shared_ptr<Model>              model_;
    const std::string                         path_;
    std::unique_ptr<llama_adapter_lora, Free> raw_;
    std::vector<AdapterTarget>                targets_;
    float                                     alpha_   = 0;
    int32_t                                   rank_    = 0;
    uint64_t                                  content_ = 0;
    uint64_t                                  n_bytes_ = 0;
    std::once_flag                            is_packed_;
    std::vector<std::vector<uint8_t>>         tiles_;  // by target
    std::atomic<uint64_t>                     n_packed_bytes_{0};

    mutable std::mutex      mutex_;
    std::condition_variable unused_;
    int64_t                 n_uses_     = 0;
    bool                    is_closing_ = false;
};

}  // namespace pyg

struct pyg_adapter : pyg::PointerHandle<std::shared_ptr<pyg::Adapter>, PYG_HANDLE_ADAPTER> {
    using PointerHandle::PointerHandle;
};
