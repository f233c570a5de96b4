// Models: the file is validated, loaded under the guard, and shared by everything created from it.
#include "boundary/backend_loader.hpp"
#include "boundary/engine_messages.hpp"
#include "boundary/handles.hpp"
#include "llama-model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace {

using pyg::fail;

// Check the memory for weights that are not mapped: the kernel would overcommit, then kill the process.
void require_room(const char * path) {
    const uint64_t size = std::filesystem::file_size(path), available = pyg_memory_available();
    if (size > available) {
        throw pyg::fail_out_of_memory(std::string("reading ") + path + " without mmap", size, available);
    }
}

// Return true if every tensor lies where a buffer may begin. Otherwise, with a general.alignment of 8 or 16, a file can
// be read, but not mapped.
bool is_aligned(const gguf_context * head) {
    const size_t alignment = ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
    for (int64_t i = 0; head && i < gguf_get_n_tensors(head); i++) {
        if ((gguf_get_data_offset(head) + gguf_get_tensor_offset(head, i)) % alignment != 0) {
            return false;
        }
    }
    return true;
}

bool are_aligned(const gguf_context * head, const pyg::MappedFiles & parts) {
    return is_aligned(head) && std::all_of(parts.begin() + 1, parts.end(), [](const auto & part) {
               return is_aligned(pyg::head_of(part->path()).get());
           });
}

// Return true if products of weights of this type are implemented. Other types are for activations, tables and internal
// use, and have null function pointers.
bool has_kernels(ggml_type type) { return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float; }

bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Tables of ids are integers in every model.
bool is_table(const std::string & name) { return name == "d2t" || name.find("tid2eid") != std::string::npos; }

bool is_vector(const std::string & name) { return ends_with(name, "norm.weight") || ends_with(name, ".bias"); }

void require_types(const char * path, const llama_model & model) {
    for (const auto & [name, tensor] : model.tensors_by_name) {
        if ((!has_kernels(tensor->type) && !is_table(name)) || (ggml_is_quantized(tensor->type) && is_vector(name))) {
            throw fail(PYG_ERR_MODEL_LOAD, "%s cannot be computed: tensor '%s' is of type %s; convert it again", path,
                       name.c_str(), ggml_type_name(tensor->type));
        }
    }
}

void require_epsilons(const char * path, const llama_hparams & sizes) {
    for (const float eps : {sizes.f_norm_eps, sizes.f_norm_rms_eps, sizes.f_norm_group_eps}) {
        if (!(eps >= 0)) {
            throw fail(PYG_ERR_MODEL_LOAD, "%s cannot be computed: its metadata gives %g as the epsilon of a norm",
                       path, static_cast<double>(eps));
        }
    }
}

void require_pooling(const char * path, const llama_hparams & sizes) {
    int32_t pooling;  // read as a number, because the file may hold any value
    std::memcpy(&pooling, &sizes.pooling_type, sizeof(pooling));
    if (pooling < LLAMA_POOLING_TYPE_UNSPECIFIED || pooling > LLAMA_POOLING_TYPE_RANK) {
        throw fail(PYG_ERR_MODEL_LOAD,
                   "%s cannot be computed: its metadata gives %d as pooling_type, of which 0 to %d are known", path,
                   pooling, LLAMA_POOLING_TYPE_RANK);
    }
}

// Without rotations, upstream's loop over the dimensions never ends, because it converts their number to a signed one.
void require_rotations(const char * path, const llama_model & model) {
    const llama_hparams & sizes = model.hparams;
    if (llama_model_rope_type(&model) == LLAMA_ROPE_TYPE_NONE) {
        return;
    }
    for (uint32_t i = 0; i < sizes.n_layer_all; i++) {
        if (sizes.n_head(i) > 0 && (sizes.n_rot(i) == 0 || sizes.n_rot(i) > INT32_MAX)) {
            throw fail(PYG_ERR_MODEL_LOAD,
                       "%s cannot be computed: its metadata gives %u as rope.dimension_count of "
                       "layer %u",
                       path, sizes.n_rot(i), i);
        }
    }
}

llama_load_mode load_mode(bool use_mmap, bool use_mlock) {
    if (use_mlock) {
        return use_mmap ? LLAMA_LOAD_MODE_MMAP_MLOCK : LLAMA_LOAD_MODE_MLOCK;
    }
    return use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
}

std::shared_ptr<pyg::Model> load(const char * path, const pyg_model_options & options) {
    auto model = std::make_shared<pyg::Model>();
    // Read again to plan contexts, perhaps from another working directory. An empty path has no absolute one.
    std::error_code failure;
    model->path       = std::filesystem::absolute(std::filesystem::u8path(path), failure).u8string();
    model->vocab_only = options.vocab_only;
    if (options.placement) {
        model->placement = std::make_shared<const pyg::Placement>(*options.placement);
    }

    if (options.shape_only) {
        model->shape = std::make_shared<pyg::Shape>(model->path, model->placement);
        model->raw   = model->shape->raw;
        model->vocab = llama_model_get_vocab(model->raw);
        return model;
    }
    pyg::require_vocabulary(path);
    const gguf_context_ptr head      = pyg::head_of(path);
    bool                   is_mapped = options.use_mmap;
    if (is_mapped && !options.vocab_only) {
        model->files = pyg::watch_parts(path);
        if (!are_aligned(head.get(), model->files)) {
            is_mapped = false;
            model->files.clear();
        }
    }
    if (!is_mapped && !options.vocab_only) {
        require_room(path);
    }
    llama_model_params params          = model->placement->params();
    model->hosts                       = model->placement->hosts();
    params.load_mode                   = load_mode(is_mapped, options.use_mlock);
    params.vocab_only                  = options.vocab_only;
    params.check_tensors               = options.check_tensors;
    params.progress_callback           = options.progress;
    params.progress_callback_user_data = options.progress_data;

    model->raw = pyg::load_model(path, params);
    pyg::require_hosts(model->hosts);
    if (const pyg::MappedFile * const file = pyg::broken_one(model->files)) {
        throw fail(PYG_ERR_MODEL_LOAD,
                   "%s was truncated or became unreadable while it was loaded: load it when it is complete",
                   file->path().c_str());
    }
    if (!model->raw) {
        throw pyg::load_failure(path);
    }
    pyg::require_computable(path, *model->raw);
    model->placement->require_matches(*model->raw);
    model->vocab = llama_model_get_vocab(model->raw);
    return model;
}

std::string metadata_value(const llama_model * model, const std::string & key) {
    char value[64];
    return llama_model_meta_val_str(model, key.c_str(), value, sizeof(value)) < 0 ? "" : value;
}

}  // namespace

namespace pyg {

Model::~Model() {
    if (!shape) {
        llama_model_free(raw);
    }
}

void Model::require_token(int32_t id, int32_t index) const {
    if (!has_token(id)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "token id %d at index %d is outside the vocabulary, 0 to %d", id, index,
                   n_vocab() - 1);
    }
}

void Model::require_shape() const {
    if (vocab_only) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s was loaded with vocab_only, so it has no weights to compute with",
                   path.c_str());
    }
}

void Model::require_weights() const {
    require_shape();
    if (shape) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s was loaded with shape_only, so it has no weights to compute with",
                   path.c_str());
    }
}

void Model::require_files() const {
    if (const MappedFile * const file = broken_one(files)) {
        throw fail(PYG_ERR_ENGINE,
                   "%s was truncated or became unreadable while the model was in use, so its weights are lost: "
                   "close the model, and load it again when the file is complete (replace a model's file by renaming "
                   "a new one, or load with use_mmap=False)",
                   file->path().c_str());
    }
}

bool has_classifier(const llama_model * model) {
    const std::string key = metadata_value(model, "general.architecture") + ".pooling_type";
    return metadata_value(model, key) == std::to_string(LLAMA_POOLING_TYPE_RANK);
}

void require_computable(const char * path, const llama_model & model) {
    require_types(path, model);
    require_epsilons(path, model.hparams);
    require_pooling(path, model.hparams);
    require_rotations(path, model);
}

Failure not_computable(const std::string & path, const std::string & messages) {
    throw_if_out_of_memory("computing with " + path, messages);
    return fail(
        PYG_ERR_MODEL_LOAD,
        "%s cannot be computed: its sizes, types or tensors are not those of its architecture; convert it again "
        "(the engine: %s)",
        path.c_str(), messages.c_str());
}

Failure load_failure(const char * path) {
    const std::string messages = engine_error_text();
    throw_if_out_of_memory(std::string("loading ") + path, messages);
    const char * reason = messages.empty() ? "the engine gave no reason" : messages.c_str();
    switch (failure_cause(messages).kind) {
    case FailureCause::UNKNOWN_ARCHITECTURE:
        return fail(PYG_ERR_UNSUPPORTED_ARCH, "%s: this engine (%s) does not know the architecture: %s", path,
                    pyg_engine_build(), reason);
    case FailureCause::NOT_DIVISIBLE:
        return fail(PYG_ERR_INVALID_PARAMETER,
                    "split_mode is \"tensor\", but the engine cannot divide the tensors of this architecture (%s): "
                    "\"layer\" works for every model",
                    reason);
    default:
        return fail(PYG_ERR_MODEL_LOAD, "%s could not be loaded: %s", path, reason);
    }
}

}  // namespace pyg

pyg_model_options pyg_model_default_options(void) {
    pyg_model_options options = {};
    options.use_mmap          = true;
    return options;
}

pyg_status pyg_model_new(const char * path, const pyg_model_options * options, pyg_model ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = new pyg_model(load(path, *options)); });
}

pyg_status pyg_model_close(pyg_model * model, pyg_error * err) { return pyg::close(model, err); }
void       pyg_model_free(pyg_model * model) { pyg::free_handle(model); }

pyg_status pyg_model_get(pyg_model * model, struct llama_model ** out, pyg_error * err) {
    return pyg::with(model, err, [&](const pyg::Model & self) { *out = self.raw; });
}

pyg_status pyg_model_get_vocab(pyg_model * model, const struct llama_vocab ** out, pyg_error * err) {
    return pyg::with(model, err, [&](const pyg::Model & self) { *out = self.vocab; });
}

pyg_status pyg_model_get_info(pyg_model * model, pyg_model_info * out, pyg_error * err) {
    return pyg::with(model, err, [&](const pyg::Model & self) {
        const llama_model * raw  = self.raw;
        pyg_model_info      info = {};
        info.n_ctx_train         = static_cast<int32_t>(std::min<uint32_t>(raw->hparams.n_ctx_train, INT32_MAX));
        info.n_embd              = llama_model_n_embd(raw);
        info.n_embd_out          = llama_model_n_embd_out(raw);
        info.n_layer             = llama_model_n_layer(raw);
        info.n_swa               = llama_model_n_swa(raw);
        info.rope_type           = llama_model_rope_type(raw);
        info.ftype               = llama_model_ftype(raw);
        info.n_cls_out           = pyg::has_classifier(raw) ? llama_model_n_cls_out(raw) : 0;  // undefined otherwise
        info.n_params            = llama_model_n_params(raw);
        info.size_bytes          = llama_model_size(raw);
        info.has_encoder         = llama_model_has_encoder(raw);
        info.has_decoder         = llama_model_has_decoder(raw);
        info.is_recurrent        = llama_model_is_recurrent(raw);
        info.is_hybrid           = llama_model_is_hybrid(raw);
        info.is_diffusion        = llama_model_is_diffusion(raw);
        info.is_causal           = raw->hparams.causal_attn;
        if (info.n_layer > 0) {  // 0 with vocab_only, where upstream would assert
            info.n_head    = llama_model_n_head(raw);
            info.n_head_kv = llama_model_n_head_kv(raw);
        }
        llama_model_desc(raw, info.desc, sizeof(info.desc));
        std::snprintf(info.arch, sizeof(info.arch), "%s", metadata_value(raw, "general.architecture").c_str());
        *out = info;
    });
}

pyg_status pyg_model_meta_count(pyg_model * model, int32_t * out, pyg_error * err) {
    return pyg::with(model, err, [&](const pyg::Model & self) { *out = llama_model_meta_count(self.raw); });
}

pyg_status pyg_model_meta_get(pyg_model * model, int32_t index, char * key, size_t key_size, size_t * key_len,
                              char * value, size_t value_size, size_t * value_len, pyg_error * err) {
    return pyg::with(model, err, [&](const pyg::Model & self) {
        const llama_model * raw   = self.raw;
        const int32_t       count = llama_model_meta_count(raw);
        if (index < 0 || index >= count) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "metadata index %d is outside 0 to %d", index, count - 1);
        }
        *key_len   = static_cast<size_t>(llama_model_meta_key_by_index(raw, index, key, key_size));
        *value_len = static_cast<size_t>(llama_model_meta_val_str_by_index(raw, index, value, value_size));
    });
}

pyg_status pyg_model_chat_template(pyg_model * model, const char * name, char ** out, pyg_error * err) {
    return pyg::with(model, err, [&](const pyg::Model & self) {
        const char * const text = llama_model_chat_template(self.raw, name);
        *out                    = text ? pyg::owned_copy(text) : nullptr;
    });
}
