// The objects behind the pyg_* pointers, shared by the files of csrc.
#pragma once

#include "boundary/guard.hpp"
#include "boundary/signals/mapped_files.hpp"
#include "ggml-cpp.h"
#include "kernels/attention/cell_positions.h"
#include "llama.h"
#include "model/dry_run_record.hpp"
#include "model/imatrix.hpp"
#include "model/placement.hpp"
#include "remote/hosts.hpp"
#include "sampling/grammar/cache.hpp"
#include "sampling/sampler_cache.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pyg {

// A model without weights and vocabulary, for planning memory.
struct Shape {
    std::string   path;
    llama_model * raw              = nullptr;
    uint64_t      vocabulary_bytes = 0;  // what the vocabulary would take
    Hosts         hosts;                 // of its devices

    std::shared_ptr<const Placement> placement;

    // Reads a file. PYG_ERR_INVALID_PARAMETER as Placement::require_matches, and the codes of load_failure.
    Shape(const std::string & path, std::shared_ptr<const Placement> placement);
    ~Shape();
    Shape(const Shape &)             = delete;
    Shape & operator=(const Shape &) = delete;
};

// Weights and vocabulary. Shared by the model's handle and everything made from it.
struct Model {
    llama_model *       raw   = nullptr;  // that of `shape`, if there is one
    const llama_vocab * vocab = nullptr;
    std::string         path;
    bool                vocab_only = false;
    Hosts               hosts;  // with some of its weights
    MappedFiles         files;  // none if it is not mapped

    std::shared_ptr<const Placement> placement = std::make_shared<const Placement>();
    std::shared_ptr<Shape>           shape;  // if the model was loaded with shape_only, else null

    mutable GrammarCache grammars;  // caches: can be recomputed
    mutable SamplerCache samplers;
    mutable DryRunRecord dry_runs;

    Model() = default;
    ~Model();
    Model(const Model &)             = delete;
    Model & operator=(const Model &) = delete;

    int32_t n_vocab() const { return llama_vocab_n_tokens(vocab); }
    bool    has_token(int32_t id) const { return id >= 0 && id < n_vocab(); }
    void    require_token(int32_t id, int32_t index) const;  // PYG_ERR_INVALID_PARAMETER
    void    require_shape() const;                           // PYG_ERR_INVALID_PARAMETER for vocab_only
    void    require_weights() const;                         // the same, and for shape_only
    void    require_files() const;                           // PYG_ERR_ENGINE if weights are gone from the disk
};

// A llama_context with what it depends on, and its own compute threads: ggml would otherwise start and end threads on
// every decode.
struct Context {
    std::shared_ptr<Model> model;
    llama_context *        raw           = nullptr;
    uint32_t               n_outputs_max = 0;
    bool                   embeddings    = false;
    bool                   encoded       = false;  // an encoder has run, so a decoder may
    bool                   edit_pending  = false;  // the next decode has to carry out sequence edits
    int32_t                n_outputs     = 0;      // rows of output from the last decode
    int32_t                n_reserved    = 0;      // rows the output buffer holds; it only grows
    bool                   has_logits    = false;  // whether those rows have logits
    std::atomic<bool>      cancelled{false};       // read by the abort callback

    std::shared_ptr<ImatrixCollector> imatrix;    // or null
    std::vector<pyg_positions>        positions;  // of its caches, for attention; only ~Context may drop them

    Context() = default;
    ~Context();
    Context(const Context &)             = delete;
    Context & operator=(const Context &) = delete;

    // Sets how many threads compute, for single tokens and for batches.
    void set_threads(int32_t n_threads, int32_t n_threads_batch);

    // A pool of so many threads; of those that compute now, it is theirs.
    ggml_threadpool * threads(int32_t n);

    // Frees pools that have not been used for long. To be called after a pass that was computed: the CPU's backend
    // touches the pool of the last one when it gets another.
    void free_unused_threads();

    void require_seq(int32_t seq_id) const;  // PYG_ERR_INVALID_PARAMETER
    bool shares_cells() const;               // whether all sequences share one buffer of cells

  private:
    // Pools of compute threads with their sizes, the last used at the end. Unused ones sleep.
    using Pools = std::vector<std::pair<int32_t, ggml_threadpool *>>;

    void free_pools(Pools::iterator end);

    Pools pools_;
};

// Compute threads for backends that compute on the CPU, asleep until the first graph; after one they spin for a while
// in expectation of the next, or sleep at once. std::system_error if not all of them can be started; then none is left.
ggml_threadpool * new_threads(int32_t n, bool spins = true);
void              free_threads(ggml_threadpool * pool);

// Positions must be below this. Some models look them up in a learned table, and reading past its end fails an assert
// while it is computed, after which the context is lost.
int32_t n_positions(const Model & model);

// llama_context_params for checked options. PYG_ERR_INVALID_PARAMETER.
llama_context_params context_params(const Model & model, const pyg_context_options & options);

pyg_context_info context_info(const Context & context);

// What upstream would plan for a context with these parameters; see pyg_context_estimate.
pyg_memory estimate_memory(const Model & model, const llama_context_params & params);

// PYG_ERR_OUT_OF_MEMORY unless caches and scratch fit beside the weights already loaded.
void require_memory(const pyg_memory & memory, const std::string & what);

// What is wrong with a file that announces a vocabulary without having it: the engine would make up as many tokens. ""
// if nothing is.
std::string missing_vocabulary(const gguf_context * gguf);

// Refuses such a file. PYG_ERR_MODEL_LOAD.
void require_vocabulary(const char * path);

// PYG_ERR_MODEL_LOAD for weights of types that no kernel has, and for sizes that a computation would not end with or
// fail at, where it can be told from them alone; model/dry_run.hpp finds the rest.
void require_computable(const char * path, const llama_model & model);

// The error for a file that a computation, or its plan, failed an assert for.
Failure not_computable(const std::string & path, const std::string & words);

// The errors for a file that upstream failed to load, and for a context that it did not make, from its own words.
Failure load_failure(const char * path);
Failure context_failure();

// A function the CPU backend exports by name; it may be in a module loaded at run time, which the linker cannot see.
void * cpu_function(const char * name);

template <class Function>
Function cpu_function_as(const char * name) {
    return reinterpret_cast<Function>(cpu_function(name));
}

// The device that the engine calls so, of this machine or of a connected host. PYG_ERR_DEVICE.
ggml_backend_dev_t device_named(const char * name);

pyg_device device_facts(ggml_backend_dev_t device);

}  // namespace pyg

struct pyg_model : pyg::Handle {
    std::shared_ptr<pyg::Model> model;

    pyg_model() : Handle(PYG_HANDLE_MODEL) {}
    void release() { model.reset(); }
    void leak() { pyg::leak_object(std::move(model)); }
};

namespace pyg {

// The model behind a handle, for use without the handle's lock: a loaded model never changes.
inline std::shared_ptr<Model> shared_model(pyg_model * handle) {
    return with_lock(handle, [](pyg_model & h) { return h.model; });
}

}  // namespace pyg

struct pyg_context : pyg::Handle {
    std::shared_ptr<pyg::Context> context;

    // Guards `decoding`, and is held only to set it. A decode holds the handle's own lock.
    std::mutex cancel_mutex;
    bool       decoding = false;

    pyg_context() : Handle(PYG_HANDLE_CONTEXT) {}
    void release() { context.reset(); }
    void leak() { pyg::leak_object(std::move(context)); }
};

struct pyg_imatrix : pyg::Handle {
    std::shared_ptr<pyg::ImatrixCollector> collector;

    pyg_imatrix() : Handle(PYG_HANDLE_IMATRIX) {}
    void release() { collector.reset(); }
    void leak() { collector.reset(); }
};

struct pyg_sampler : pyg::Handle {
    std::shared_ptr<pyg::Model>   model;  // null if the chain has no vocabulary
    llama_sampler *               chain = nullptr;
    std::vector<llama_token_data> candidates;
    bool                          stuck = false;  // a token left its grammar with no way to continue

    pyg_sampler() : Handle(PYG_HANDLE_SAMPLER) {}
    void release();
    void leak() {
        pyg::leak_object(std::move(model));
        chain = nullptr;
    }
};
