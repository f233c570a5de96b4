// Objects behind the pyg_* pointers, shared by the files of csrc.
#pragma once

#include "boundary/guard.hpp"
#include "boundary/signals/mapped_files.hpp"
#include "ggml-cpp.h"
#include "kernels/attention/cell_positions.h"
#include "llama.h"
#include "model/dry_run.hpp"
#include "model/imatrix.hpp"
#include "model/placement.hpp"
#include "remote/hosts.hpp"
#include "sampling/grammar/cache.hpp"
#include "sampling/sampler_cache.hpp"

#include <atomic>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pyg {

class AdapterSet;  // adapters/adapter_set.hpp

// A model without weights and vocabulary, for planning memory.
struct Shape : NonCopyable {
    std::string   path;
    llama_model * raw              = nullptr;
    uint64_t      vocabulary_bytes = 0;  // size of the vocabulary when loaded
    Hosts         hosts;                 // of its devices

    std::shared_ptr<const Placement> placement;

    // Read a file. PYG_ERR_INVALID_PARAMETER as in Placement::require_matches, and the codes of load_failure.
    Shape(const std::string & path, std::shared_ptr<const Placement> placement);
    ~Shape();
};

// Weights and vocabulary. Shared by the model's handle and everything made from it.
struct Model : NonCopyable {
    llama_model *       raw   = nullptr;  // that of `shape`, if set
    const llama_vocab * vocab = nullptr;
    std::string         path;
    bool                vocab_only = false;
    Hosts               hosts;  // that hold some of its weights
    MappedFiles         files;  // empty if it is not mapped

    std::shared_ptr<const Placement> placement = std::make_shared<const Placement>();
    std::shared_ptr<Shape>           shape;  // set if the model was loaded with shape_only

    mutable GrammarCache grammars;  // caches: can be recomputed
    mutable SamplerCache samplers;
    mutable DryRunRecord dry_runs;

    // Guards upstream's list of adapters, which it reads when it plans the graphs of any context. Shared by readers,
    // because making a context takes seconds, and steps of others go on.
    mutable std::shared_mutex adapters_mutex;

    Model() = default;
    ~Model();

    int32_t n_vocab() const { return llama_vocab_n_tokens(vocab); }
    bool    has_token(int32_t id) const { return id >= 0 && id < n_vocab(); }
    void    require_token(int32_t id, int32_t index) const;  // PYG_ERR_INVALID_PARAMETER
    void    require_shape() const;                           // PYG_ERR_INVALID_PARAMETER for vocab_only
    void    require_weights() const;                         // the same, and for shape_only
    void    require_files() const;                           // PYG_ERR_ENGINE if mapped weights were truncated on disk
};

// A llama_context, the objects it depends on, and its thread pools: ggml would otherwise start and stop threads in
// every decode.
struct Context : NonCopyable {
    std::shared_ptr<Model> model;
    llama_context *        raw           = nullptr;
    uint32_t               n_outputs_max = 0;
    bool                   embeddings    = false;
    bool                   encoded       = false;  // an encoder has run, so the decoder may
    bool                   edit_pending  = false;  // the next decode has to apply sequence edits
    int32_t                n_outputs     = 0;      // rows of output of the last decode
    int32_t                n_reserved    = 0;      // rows the output buffer holds; it only grows
    bool                   has_logits    = false;  // whether those rows are logits
    std::atomic<bool>      cancelled{false};       // read by the abort callback

    std::shared_ptr<const AdapterSet> adapters;  // of all sequences, or null; an engine has its own
    // Of adapters, by content: why they are refused; "" if upstream's graphs have every change.
    std::unordered_map<uint64_t, std::string> checked_adapters;
    std::shared_ptr<ImatrixCollector>         imatrix;  // or null
    std::vector<pyg_positions> positions;  // of its KV caches, read by attention; must live as long as `raw`

    Context() = default;
    ~Context();

    // Set the number of compute threads, for single tokens and for batches.
    void set_threads(int32_t n_threads, int32_t n_threads_batch);

    // Return the pool of `n` threads, created on first use.
    ggml_threadpool * threads(int32_t n);

    // Free pools that have not been used for long. Call it after a completed forward pass, because the CPU backend
    // accesses its last pool when it switches to another.
    void free_unused_threads();

    // PYG_ERR_INVALID_PARAMETER if there is no such sequence, or the model has no memory (KV cache or recurrent state).
    void           require_seq(int32_t seq_id) const;
    llama_memory_t require_memory() const;

    const llama_context_params & params() const { return params_; }  // with which it was opened

    bool shares_cells() const;  // true if all sequences share one buffer of KV cells

    // Create the llama_context. PYG_ERR_OUT_OF_MEMORY, PYG_ERR_INVALID_PARAMETER: there is none afterwards.
    void open(const llama_context_params & params);

    // Replace the llama_context by one with an empty KV cache of another layout: shared by all sequences, or divided
    // into one stream of cells for each. If that throws, the KV cache is empty and has the former layout; EngineAbort:
    // there is none.
    void replace_kv_cache(bool unified, uint32_t n_ctx);

  private:
    // Thread pools with their sizes, most recently used last. Unused ones sleep.
    using Pools = std::vector<std::pair<int32_t, ggml_threadpool *>>;

    void free_pools(Pools::iterator end);

    llama_context_params params_ = {};  // of `raw`
    Pools                pools_;
};

constexpr int32_t ALL_SEQUENCES = -1;

// Attach the positions of the cells to the K tensors of all KV caches in main memory, for our attention kernel. The
// result must live as long as the context.
std::vector<pyg_positions> attach_cell_positions(llama_context * context);

// Number of runs of consecutive cells that a sequence has in all KV caches of a context; 0 if it has only states.
uint32_t n_cell_runs(llama_context * context, int32_t seq_id);

// Carry out the copies between streams of a KV cache that the next decode would begin with.
void finish_stream_copies(llama_context * context);

// Create a thread pool for a backend that computes on the CPU. It sleeps until the first graph; after a graph it spins
// for a while, or sleeps at once. std::system_error if not all threads can be started; then none is left.
ggml_threadpool * new_threads(int32_t n, bool spins = true);
void              free_threads(ggml_threadpool * pool);

// Upper limit of positions. Some models look them up in a learned table; reading past its end would fail an assert
// during a decode and poison the context.
int32_t n_positions(const Model & model);

// Validate the options and convert them. PYG_ERR_INVALID_PARAMETER.
llama_context_params context_params(const Model & model, const pyg_context_options & options);

// Upstream's memory plan for a context with these parameters; see pyg_context_estimate.
pyg_memory estimate_memory(const Model & model, const llama_context_params & params);

// PYG_ERR_OUT_OF_MEMORY unless KV cache and scratch buffers fit in addition to the loaded weights.
void require_memory(const pyg_memory & memory, const std::string & what);

// Error message for a file that declares a vocabulary but lacks it, which the engine would fill with made-up tokens; ""
// if there is none.
std::string missing_vocabulary(const gguf_context * gguf);

// PYG_ERR_MODEL_LOAD for such a file, and for one that is foreign, damaged or incomplete (model/gguf_file.hpp).
void require_vocabulary(const char * path);

// Metadata of a file; null if it has none, which the engine reports when it loads the file.
gguf_context_ptr head_of(const std::string & path);

// PYG_ERR_MODEL_LOAD for weights of types without kernels, and for sizes with which a computation would hang or fail,
// as far as they can be checked statically; model/dry_run.hpp finds the rest.
void require_computable(const char * path, const llama_model & model);

// Error for a file with which a computation or its planning failed an assert.
Failure not_computable(const std::string & path, const std::string & words);

// Errors for a file that upstream failed to load, and for a context that it failed to create, from its log messages.
Failure load_failure(const char * path);
Failure context_failure();

// A number as a ggml type. PYG_ERR_INVALID_PARAMETER.
ggml_type checked_type(int32_t type);

// Return true if the model has a classification head, for rank pooling.
bool has_classifier(const llama_model * model);

// Look up a function that the CPU backend exports by name. It may be in a module loaded at run time, so it cannot be
// linked.
void * cpu_function(const char * name);

template <class Function>
Function cpu_function_as(const char * name) {
    return reinterpret_cast<Function>(cpu_function(name));
}

// Find a device of this machine or of a connected host by upstream's name. PYG_ERR_DEVICE.
ggml_backend_dev_t device_named(const char * name);

pyg_device device_facts(ggml_backend_dev_t device);

}  // namespace pyg

struct pyg_model : pyg::PointerHandle<std::shared_ptr<pyg::Model>, PYG_HANDLE_MODEL> {
    using PointerHandle::PointerHandle;
};

struct pyg_context : pyg::PointerHandle<std::shared_ptr<pyg::Context>, PYG_HANDLE_CONTEXT> {
    using PointerHandle::PointerHandle;

    // Guards `decoding`; held only briefly. A decode holds the handle's own lock.
    std::mutex cancel_mutex;
    bool       decoding = false;
};

struct pyg_imatrix : pyg::PointerHandle<std::shared_ptr<pyg::ImatrixCollector>, PYG_HANDLE_IMATRIX> {
    using PointerHandle::PointerHandle;
};

struct pyg_sampler : pyg::Handle {
    std::shared_ptr<pyg::Model>   model;  // null if the chain has no vocabulary
    pyg::UniqueSampler            chain;
    std::vector<llama_token_data> candidates;
    bool                          stuck = false;  // the grammar cannot continue after an accepted token

    pyg_sampler() : Handle(PYG_HANDLE_SAMPLER) {}
    void release() {
        chain.reset();
        model.reset();
        candidates = {};
    }
    void leak() {
        pyg::leak_object(std::move(model));
        (void) chain.release();
    }
};
