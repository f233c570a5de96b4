// Reading of an adapter's file. Everything that upstream would assert on, or skip in silence, is refused by name.
#include "adapters/adapter.hpp"
#include "adapters/hash.hpp"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "llama-adapter.h"
#include "llama-arch.h"
#include "llama-model.h"
#include "model/gguf_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace {

using pyg::fail;

constexpr const char * SUFFIX_A = ".lora_a";
constexpr const char * SUFFIX_B = ".lora_b";

bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The file's tensors, without data.
struct File {
    std::string      path;
    gguf_context_ptr header;
    ggml_context_ptr tensors;
    std::ifstream    data;

    // The text of a key; "" if there is none.
    std::string text(const char * key) const {
        const int64_t id = gguf_find_key(header.get(), key);
        return id >= 0 && gguf_get_kv_type(header.get(), id) == GGUF_TYPE_STRING ? gguf_get_val_str(header.get(), id)
                                                                                 : "";
    }

    std::vector<uint8_t> read(const ggml_tensor * tensor) {
        const int64_t        id = gguf_find_tensor(header.get(), tensor->name);
        std::vector<uint8_t> bytes(ggml_nbytes(tensor));
        data.seekg(
            static_cast<std::streamoff>(gguf_get_data_offset(header.get()) + gguf_get_tensor_offset(header.get(), id)));
        data.read(reinterpret_cast<char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        if (!data) {
            throw fail(PYG_ERR_MODEL_LOAD, "%s cannot be read: its tensor %s is incomplete", path.c_str(),
                       tensor->name);
        }
        return bytes;
    }
};

File open_adapter(const std::string & path) {
    pyg::require_all_data(path, pyg::read_gguf_header(path));
    ggml_context *   tensors = nullptr;
    gguf_context_ptr header(gguf_init_from_file(path.c_str(), {/*no_alloc =*/true, /*ctx =*/&tensors}));
    if (!header) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s cannot be read: %s", path.c_str(), pyg::engine_error_text().c_str());
    }
    File file{path, std::move(header), ggml_context_ptr(tensors), {}};
    file.data.open(std::filesystem::u8path(path), std::ios::binary);
    return file;
}

void require_adapter(const File & file, const pyg::Model & model) {
    const char *      path = file.path.c_str();
    const std::string type = file.text("general.type"), kind = file.text("adapter.type");
    if (type != "adapter") {
        throw fail(PYG_ERR_MODEL_LOAD, "%s is not an adapter: its general.type is \"%s\"%s", path, type.c_str(),
                   type.empty() || type == "model" ? "; load a model with pyggml.load" : "");
    }
    if (kind != "lora") {
        throw fail(PYG_ERR_MODEL_LOAD, "%s is an adapter of type \"%s\", of which only \"lora\" is supported", path,
                   kind.c_str());
    }
    const std::string arch = file.text("general.architecture"), own = llm_arch_name(model.raw->arch);
    if (arch != own) {
        throw fail(PYG_ERR_ARCH_MISMATCH, "%s is an adapter of a model of the architecture \"%s\", but %s is \"%s\"",
                   path, arch.c_str(), model.path.c_str(), own.c_str());
    }
    if (gguf_find_key(file.header.get(), "adapter.alora.invocation_tokens") >= 0) {
        throw fail(PYG_ERR_MODEL_LOAD,
                   "%s is an activated LoRA (adapter.alora.invocation_tokens), which applies only after its invocation "
                   "tokens; that is not supported: use a LoRA without them",
                   path);
    }
}

float alpha_of(const File & file) {
    const int64_t id = gguf_find_key(file.header.get(), "adapter.lora.alpha");
    if (id < 0) {
        return 0;
    }
    if (gguf_get_kv_type(file.header.get(), id) != GGUF_TYPE_FLOAT32) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s: adapter.lora.alpha must be a 32-bit float", file.path.c_str());
    }
    const float alpha = gguf_get_val_f32(file.header.get(), id);
    if (!std::isfinite(alpha)) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s: adapter.lora.alpha is %g, which is not a finite number", file.path.c_str(),
                   alpha);
    }
    return alpha;
}

struct Pair {
    const ggml_tensor *a = nullptr, *b = nullptr;
};

// A and B by the name of their weights.
std::map<std::string, Pair> pairs_of(const File & file) {
    const char *                path = file.path.c_str();
    std::map<std::string, Pair> pairs;
    for (const ggml_tensor * each = ggml_get_first_tensor(file.tensors.get()); each;
         each                     = ggml_get_next_tensor(file.tensors.get(), const_cast<ggml_tensor *>(each))) {
        const std::string name = each->name;
        if (ends_with(name, SUFFIX_A)) {
            pairs[name.substr(0, name.size() - std::strlen(SUFFIX_A))].a = each;
        } else if (ends_with(name, SUFFIX_B)) {
            pairs[name.substr(0, name.size() - std::strlen(SUFFIX_B))].b = each;
        } else {
            throw fail(PYG_ERR_MODEL_LOAD,
                       "%s has the tensor %s, which is no part of a low-rank product%s: merge the adapter into its "
                       "model instead",
                       path, each->name,
                       name.find("norm") != std::string::npos ? " (adapters cannot replace weights of norms)" : "");
        }
    }
    if (pairs.empty()) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s has no tensors", path);
    }
    for (const auto & [name, pair] : pairs) {
        if (!pair.a || !pair.b) {
            throw fail(PYG_ERR_MODEL_LOAD, "%s has only one of %s.lora_a and %s.lora_b", path, name.c_str(),
                       name.c_str());
        }
    }
    return pairs;
}

std::string shape_of(const ggml_tensor * tensor) {
    std::string text = "(";
    for (int i = 0; i < ggml_n_dims(tensor); i++) {
        text += (i ? ", " : "") + std::to_string(tensor->ne[i]);
    }
    return text + ")";
}

// The weights of a pair, which fit.
const ggml_tensor * target_of(const File & file, const pyg::Model & model, const std::string & name,
                              const Pair & pair) {
    const char *              path    = file.path.c_str();
    const ggml_tensor * const weights = model.raw->get_tensor(name.c_str());
    if (!weights) {
        throw fail(PYG_ERR_ARCH_MISMATCH,
                   "%s changes the tensor %s, which %s does not have: it belongs to another model", path, name.c_str(),
                   model.path.c_str());
    }
    const bool is_lookup = name == "token_embd.weight";
    if (is_lookup && model.raw->output && std::strcmp(model.raw->output->name, weights->name) == 0) {
        throw fail(PYG_ERR_MODEL_LOAD,
                   "%s changes token_embd.weight, which is also the output matrix of %s; that is not supported: merge "
                   "the adapter into its model instead",
                   path, model.path.c_str());
    }
    if (weights->type == GGML_TYPE_NVFP4) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s changes %s, which is of type nvfp4; that is not supported", path,
                   name.c_str());
    }
    const ggml_tensor &a = *pair.a, &b = *pair.b;
    const int64_t      n_inputs  = is_lookup ? weights->ne[1] : weights->ne[0];
    const int64_t      n_outputs = is_lookup ? weights->ne[0] : weights->ne[1];
    const bool         fits      = is_lookup ? a.ne[1] == n_inputs && a.ne[0] == b.ne[0] && b.ne[1] == n_outputs
                                             : a.ne[0] == n_inputs && a.ne[1] == b.ne[0] && b.ne[1] == n_outputs;
    const bool same_experts = a.ne[2] == weights->ne[2] && b.ne[2] == weights->ne[2] && a.ne[3] == 1 && b.ne[3] == 1;
    if (b.ne[0] == 0) {
        throw fail(PYG_ERR_MODEL_LOAD, "%s has a rank of 0 for %s", path, name.c_str());
    }
    if (!fits || !same_experts) {
        throw fail(
            PYG_ERR_ARCH_MISMATCH,
            "%s has %s.lora_a %s and lora_b %s, which do not fit %s of the shape %s: it belongs to another model", path,
            name.c_str(), shape_of(&a).c_str(), shape_of(&b).c_str(), model.path.c_str(), shape_of(weights).c_str());
    }
    return weights;
}

ggml_type stored_type(ggml_type type) { return type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ? type : GGML_TYPE_F32; }

// Type of the buffers for an adapter's tensors: those of the device of the weights, or main memory.
ggml_backend_buffer_type_t buffer_type_for(const ggml_tensor * weights) {
    ggml_backend_buffer_type_t const type   = ggml_backend_buffer_get_type(weights->buffer);
    ggml_backend_dev_t const         device = ggml_backend_buft_get_device(type);
    const bool                       on_cpu = !device || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
    return on_cpu || ggml_backend_buft_is_host(type) ? ggml_backend_cpu_buffer_type() : type;
}

// The values of a tensor as stored here: floats, all of them finite.
std::vector<uint8_t> values_of(File & file, const ggml_tensor * tensor) {
    std::vector<uint8_t> bytes = file.read(tensor);
    std::vector<float>   floats(static_cast<size_t>(ggml_nelements(tensor)));
    if (tensor->type == GGML_TYPE_F32) {
        std::memcpy(floats.data(), bytes.data(), bytes.size());
    } else {
        const auto to_float = ggml_get_type_traits(tensor->type)->to_float;
        if (!to_float) {
            throw fail(PYG_ERR_MODEL_LOAD, "%s: %s is of type %s; use f32, f16 or bf16", file.path.c_str(),
                       tensor->name, ggml_type_name(tensor->type));
        }
        to_float(bytes.data(), floats.data(), ggml_nelements(tensor));
    }
    for (const float value : floats) {
        if (!std::isfinite(value)) {
            throw fail(PYG_ERR_MODEL_LOAD, "%s is damaged: %s has values that are not finite", file.path.c_str(),
                       tensor->name);
        }
    }
    if (stored_type(tensor->type) != tensor->type) {
        bytes.resize(floats.size() * sizeof(float));
        std::memcpy(bytes.data(), floats.data(), bytes.size());
    }
    return bytes;
}

}  // namespace

namespace pyg {

void Adapter::read(const std::string & path) {
    File file = open_adapter(path);
    require_adapter(file, *model_);
    alpha_           = alpha_of(file);
    const auto pairs = pairs_of(file);
    raw_.reset(new llama_adapter_lora(model_->raw));
    raw_->alpha = alpha_;

    struct Source {
        const ggml_tensor * from;
        ggml_tensor *       to;
    };
    std::map<ggml_backend_buffer_type_t, ggml_context *> contexts;
    std::vector<Source>                                  sources;
    const auto copy_of = [&](ggml_backend_buffer_type_t type, const ggml_tensor * from) {
        ggml_context *& context = contexts[type];
        if (!context) {
            context = ggml_init({2 * pairs.size() * ggml_tensor_overhead(), nullptr, /*no_alloc =*/true});
            raw_->ctxs.emplace_back(context);
        }
        ggml_tensor * const to = ggml_new_tensor(context, stored_type(from->type), GGML_MAX_DIMS, from->ne);
        ggml_set_name(to, from->name);
        sources.push_back({from, to});
        n_bytes_ += ggml_nbytes(to);
        return to;
    };
    for (const auto & [name, pair] : pairs) {
        const ggml_tensor * const        weights = target_of(file, *model_, name, pair);
        ggml_backend_buffer_type_t const type    = buffer_type_for(weights);
        ggml_tensor * const              a       = copy_of(type, pair.a);
        ggml_tensor * const              b       = copy_of(type, pair.b);
        raw_->ab_map[name]                       = llama_adapter_lora_weight(a, b);
        rank_                                    = std::max(rank_, static_cast<int32_t>(b->ne[0]));
        targets_.push_back({weights, a, b});
    }
    if (const uint64_t available = pyg_memory_available(); 2 * n_bytes_ > available) {
        throw fail_out_of_memory("the adapter " + path, 2 * n_bytes_, available);
    }
    for (const auto & [type, context] : contexts) {
        ggml_backend_buffer_t const buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
        if (!buffer) {
            throw fail_out_of_memory("the adapter " + path, n_bytes_, 0);
        }
        raw_->bufs.emplace_back(buffer);
    }
    ContentHash hash;
    hash.add(alpha_);
    for (const Source & source : sources) {
        const std::vector<uint8_t> values = values_of(file, source.from);
        hash.add(source.from->name);
        hash.add(&source.to->ne, sizeof(source.to->ne));
        hash.add(static_cast<uint64_t>(source.to->type));
        hash.add(values.data(), values.size());
        ggml_backend_tensor_set(source.to, values.data(), 0, values.size());
    }
    content_ = hash.value();
}

}  // namespace pyg
