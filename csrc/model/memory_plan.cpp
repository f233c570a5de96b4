// Memory plan of a model and a context, made before anything is allocated.
//
// The engine does not reject an absurd context: the system overcommits, and the kernel kills the process when the pages
// are touched. So the engine's own planner runs first, on a copy of the model without weights (`no_alloc`), and the
// plan is compared with the available memory.
#include "boundary/backend_loader.hpp"
#include "boundary/handles.hpp"
#include "boundary/log.hpp"
#include "context/forward.hpp"
#include "kernels/backend/c_api.h"
#include "llama-cpp.h"
#include "llama-ext.h"
#include "llama-model.h"
#include "model/gguf_file.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr uint32_t PLANNED_CELLS = 1 << 18;  // planning allocates memory per cell, so larger contexts are extrapolated

// Allocations outside of the planned buffers, measured: per cell 52 bytes at once and the rest when it is used; per
// context 1.6 to 4.7 MB for graphs and their schedule; per token and merge of a vocabulary 123 to 145 bytes.
constexpr uint64_t CELL_BYTES             = 144;
constexpr uint64_t CONTEXT_BYTES          = 2 << 20;
constexpr uint64_t VOCABULARY_ENTRY_BYTES = 132;

constexpr int64_t MOST_TOKENS = 1 << 24;  // of a vocabulary whose embedding is in another file of a split set

// Rows of the embedding; 0 if no tensor has the usual name.
int64_t n_vocab_of(const gguf_context * gguf) {
    const int64_t tensor = gguf_find_tensor(gguf, "token_embd.weight");
    return tensor < 0 ? 0 : gguf_get_tensor_ne(gguf, tensor)[1];
}

uint64_t array_length(const gguf_context * gguf, const char * key) {
    const int64_t id = gguf_find_key(gguf, key);
    return id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_ARRAY ? gguf_get_arr_n(gguf, id) : 0;
}

std::string text_of(const gguf_context * gguf, const std::string & key) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    return id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_STRING ? gguf_get_val_str(gguf, id) : "";
}

// Declared size of a vocabulary that is missing from the file; 0 if it is there.
uint32_t n_missing_tokens(const gguf_context * gguf) {
    const std::string kind = text_of(gguf, "tokenizer.ggml.model");
    const std::string key  = text_of(gguf, "general.architecture") + ".vocab_size";
    const int64_t     id   = gguf_find_key(gguf, key.c_str());
    const bool        none = kind == "no_vocab" || kind == "none";
    return none && id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_UINT32 ? gguf_get_val_u32(gguf, id) : 0;
}

// A file without a vocabulary is assumed to have as many merges as tokens, like most.
uint64_t vocabulary_bytes(const gguf_context * gguf, uint64_t n_vocab) {
    const uint64_t n_tokens = array_length(gguf, "tokenizer.ggml.tokens");
    const uint64_t n_merges = array_length(gguf, "tokenizer.ggml.merges");
    return VOCABULARY_ENTRY_BYTES * (n_tokens ? n_tokens + n_merges : 2 * n_vocab);
}

llama_model_kv_override override_of(const std::string & key, llama_model_kv_override_type tag) {
    llama_model_kv_override result = {};
    result.tag                     = tag;
    std::snprintf(result.key, sizeof(result.key), "%s", key.c_str());
    return result;
}

// Metadata overrides that make the engine skip the vocabulary, which takes most of the time, but keep its size. Empty
// if the file does not declare the size.
std::vector<llama_model_kv_override> without_vocabulary(const gguf_context * gguf, int64_t n_vocab) {
    const std::string arch = text_of(gguf, "general.architecture");
    if (arch.empty() || n_vocab == 0) {
        return {};
    }
    llama_model_kv_override kind = override_of("tokenizer.ggml.model", LLAMA_KV_OVERRIDE_TYPE_STR);
    std::snprintf(kind.val_str, sizeof(kind.val_str), "no_vocab");
    llama_model_kv_override size = override_of(arch + ".vocab_size", LLAMA_KV_OVERRIDE_TYPE_INT);
    size.val_i64                 = n_vocab;
    return {kind, size, {}};  // upstream reads up to an empty key
}

// Memory of a buffer type: a GPU, or null for main memory, even if it is accessible to a GPU.
ggml_backend_dev_t memory_of(ggml_backend_buffer_type_t type) {
    const ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
    return ggml_backend_buft_is_host(type) || pyg::computes_on_cpu(device) ? nullptr : device;
}

// Return true if the originals of repacked weights are released, as our kernels do where the system can.
bool lets_go_of_originals(ggml_backend_buffer_type_t type) {
    return pyg::platform::RELEASES_MAPPED_PAGES &&
           std::strcmp(ggml_backend_buft_name(type), PYG_KERNELS_BUFFER_TYPE) == 0;
}

pyg_memory_share share_of(ggml_backend_dev_t device) {
    pyg_memory_share share = {};
    if (device) {
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        share.available_bytes = free;
    } else {
        device                = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        share.available_bytes = pyg_memory_available();
    }
    std::snprintf(share.name, sizeof(share.name), "%s", ggml_backend_dev_name(device));
    return share;
}

// Bytes of the mapped file that count as weights. Upstream's buffers span from the first to the last weight in the
// file, but weights between them may have been copied elsewhere.
size_t mapped_bytes(const llama_context * context, ggml_backend_buffer_type_t type) {
    size_t bytes = 0;
    for (const auto & [name, tensor] : llama_get_model(context)->tensors_by_name) {
        if (tensor->buffer && ggml_backend_buffer_get_type(tensor->buffer) == type) {
            bytes += GGML_PAD(ggml_nbytes(tensor), ggml_backend_buft_get_alignment(type));
        }
    }
    return bytes;
}

bool is_mapped(ggml_backend_buffer_type_t type) { return std::strcmp(ggml_backend_buft_name(type), "CPU_Mapped") == 0; }

void add(pyg_memory_share & share, const llama_memory_breakdown_data & bytes) {
    share.weights_bytes += bytes.model;
    share.context_bytes += bytes.context;
    share.compute_bytes += bytes.compute;
}

// Buffers of a context and its model, planned or real, as the engine reports them.
pyg_memory buffers_of(const llama_context * context, const pyg::Placement & placement) {
    const std::vector<ggml_backend_dev_t> devices = placement.devices();
    pyg_memory                            memory  = {};
    memory.shares[memory.n_shares++]              = share_of(nullptr);
    for (const ggml_backend_dev_t device : devices) {
        memory.shares[memory.n_shares++] = share_of(device);
    }
    for (auto & [type, bytes] : llama_get_memory_breakdown(context)) {
        if (is_mapped(type)) {
            bytes.model = mapped_bytes(context, type);
        }
        const ggml_backend_dev_t device = memory_of(type);
        const auto               found  = std::find(devices.begin(), devices.end(), device);
        if (found != devices.end()) {
            add(memory.shares[1 + (found - devices.begin())], bytes);
        } else if (device && ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_META) {
            // All devices combined (LLAMA_SPLIT_MODE_TENSOR): upstream reports the fullest.
            std::for_each_n(memory.shares + 1, devices.size(), [&own = bytes](auto & share) { add(share, own); });
        } else {
            add(memory.shares[0], bytes);
            if (!device && !ggml_backend_buft_is_host(type)) {
                memory.shares[0].repacked_bytes += bytes.model;  // in a layout of the CPU's kernels
                memory.shares[0].originals_bytes += lets_go_of_originals(type) ? 0 : bytes.model;
            }
        }
    }
    return memory;
}

uint64_t output_bytes(const llama_context * context, const llama_context_params & params) {
    const llama_model * model  = llama_get_model(context);
    const uint64_t      n_embd = params.embeddings ? static_cast<uint64_t>(llama_model_n_embd_out(model)) : 0;
    const uint64_t      n_rows = params.embeddings ? llama_n_batch(context) : params.n_seq_max;
    return n_rows * sizeof(float) *
           (static_cast<uint64_t>(llama_vocab_n_tokens(llama_model_get_vocab(model))) + n_embd);
}

// Recurrent models have one state per sequence, whatever its length.
uint64_t n_cells(const llama_model * model, const llama_context_params & params) {
    return llama_model_is_recurrent(model) ? params.n_seq_max : params.n_ctx;
}

// Main memory for a model and its context. Where the address space is limited (ulimit -v), the stacks of the engine's
// threads count, too, although they are hardly used.
uint64_t available_to_an_engine() {
    pyg_memory_limits limits{};
    pyg_memory_get_limits(&limits);
    if (limits.address_space != UINT64_MAX) {
        const uint64_t n_threads = static_cast<uint64_t>(pyg_cpu_count()) + 1;
        const uint64_t stacks    = pyg::platform::default_stack_size() * n_threads;
        limits.address_space -= std::min(limits.address_space, stacks);
    }
    return std::min({limits.machine, limits.groups, limits.address_space});
}

llama_context * planned(const pyg::Shape & shape, const llama_context_params & params) {
    try {
        return pyg::create_context(shape.raw, params);
    } catch (const pyg::EngineAbort & abort) {  // options are validated, so the file is broken
        throw pyg::not_computable(shape.path, abort.message);
    }
}

// The engine's plan for a model with these parameters.
pyg_memory plan(const pyg::Shape & shape, const llama_context_params & params) {
    llama_model * const     model = shape.raw;
    const llama_context_ptr context(planned(shape, params));
    pyg::require_hosts(shape.hosts);
    if (!context) {
        throw pyg::context_failure();
    }
    pyg_memory memory = buffers_of(context.get(), *shape.placement);
    if (llama_get_memory(context.get())) {
        memory.shares[0].context_bytes += n_cells(model, params) * CELL_BYTES;
    }
    memory.shares[0].compute_bytes += output_bytes(context.get(), params) + CONTEXT_BYTES;
    return memory;
}

// Everything that depends on the number of cells is linear in it, so two plans are extrapolated.
pyg_memory extrapolate(const pyg::Shape & shape, llama_context_params params) {
    const double steps    = static_cast<double>(params.n_ctx - PLANNED_CELLS) / (PLANNED_CELLS / 2);
    params.n_ctx          = PLANNED_CELLS / 2;
    const pyg_memory half = plan(shape, params);
    params.n_ctx          = PLANNED_CELLS;
    pyg_memory full       = plan(shape, params);
    for (int32_t i = 0; i < full.n_shares; i++) {
        for (const auto field : {&pyg_memory_share::context_bytes, &pyg_memory_share::compute_bytes}) {
            uint64_t &     bytes = full.shares[i].*field;
            const uint64_t more  = bytes - std::min(bytes, half.shares[i].*field);
            bytes += static_cast<uint64_t>(steps * static_cast<double>(more));
        }
    }
    return full;
}

}  // namespace

namespace pyg {

Shape::~Shape() { llama_model_free(raw); }

Shape::Shape(const std::string & file, std::shared_ptr<const Placement> where)
    : path(file), placement(std::move(where)) {
    llama_model_params params = placement->params();
    params.no_alloc           = true;
    params.load_mode          = LLAMA_LOAD_MODE_NONE;

    const gguf_context_ptr               gguf      = read_whole_gguf(path);
    const int64_t                        n_vocab   = n_vocab_of(gguf.get());
    std::vector<llama_model_kv_override> overrides = without_vocabulary(gguf.get(), n_vocab);

    vocabulary_bytes    = ::vocabulary_bytes(gguf.get(), static_cast<uint64_t>(n_vocab));
    params.kv_overrides = overrides.empty() ? nullptr : overrides.data();

    const LogMute    quietly;   // warnings are logged when the model is really loaded
    const GuardScope messages;  // its vocabulary is skipped on purpose
    hosts = placement->hosts();
    llama_model_ptr loaded(load_model(path, params));
    require_hosts(hosts);
    if (!loaded) {
        throw load_failure(path.c_str());
    }
    require_computable(path.c_str(), *loaded);
    placement->require_matches(*loaded);
    raw = loaded.release();
}

std::string missing_vocabulary(const gguf_context * gguf) {
    const int64_t n_tokens = n_missing_tokens(gguf), n_rows = n_vocab_of(gguf);
    if (n_tokens <= (n_rows ? n_rows : MOST_TOKENS)) {
        return "";
    }
    return "it says that its vocabulary has " + std::to_string(n_tokens) + " tokens, but it has no vocabulary, and " +
           std::to_string(n_rows) + " rows in its embedding; convert it again";
}

void require_vocabulary(const char * path) {
    const std::string missing = missing_vocabulary(read_whole_gguf(path).get());
    if (!missing.empty()) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s could not be loaded: %s", path, missing.c_str());
    }
}

gguf_context_ptr head_of(const std::string & path) {
    LogBuffer        held;
    const GuardScope messages;
    gguf_context_ptr gguf(gguf_init_from_file(path.c_str(), {/*no_alloc =*/true, /*ctx =*/nullptr}));
    held.drop();
    return gguf;
}

pyg_memory estimate_memory(const Model & model, const llama_context_params & params) {
    const LogMute quietly;
    auto          shape  = model.shape ? model.shape : std::make_shared<Shape>(model.path, model.placement);
    pyg_memory    memory = params.n_ctx <= PLANNED_CELLS ? plan(*shape, params) : extrapolate(*shape, params);
    memory.shares[0].vocabulary_bytes = shape->vocabulary_bytes;
    shape.reset();
    // A plan takes about 190 bytes per cell for a moment, which the C library would keep from then on: the same
    // settings would fit before a plan and not after it.
    platform::return_freed_memory();
    memory.shares[0].available_bytes = available_to_an_engine();
    return memory;
}

void require_memory(const pyg_memory & memory, const std::string & what) {
    for (int32_t i = 0; i < memory.n_shares; i++) {
        const pyg_memory_share & share    = memory.shares[i];
        const uint64_t           required = share.context_bytes + share.compute_bytes;
        if (required > share.available_bytes) {
            throw fail_out_of_memory(i == 0 ? what : what + " on " + share.name, required, share.available_bytes);
        }
    }
}

}  // namespace pyg

pyg_status pyg_context_estimate(pyg_model * model, const pyg_context_options * options, pyg_memory * out,
                                pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto shared = pyg::shared_object(model);
        *out              = pyg::estimate_memory(*shared, pyg::context_params(*shared, *options));
    });
}

pyg_status pyg_context_memory(pyg_context * ctx, pyg_memory * out, pyg_error * err) {
    return pyg::with(ctx, err,
                     [&](const pyg::Context & context) { *out = buffers_of(context.raw, *context.model->placement); });
}
