#include "context/fingerprint.hpp"

#include "boundary/backend_loader.hpp"
#include "llama-context.h"
#include "llama-model.h"
#include "model/gguf_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace {

// Bytes at the start and in the middle of each tensor: a model may differ from another in a few of them.
constexpr uint64_t SAMPLE_SIZE = 4096;

uint64_t checksum_of(const char * text, uint64_t hash) { return pyg::checksum(text, std::strlen(text), hash); }

template <class Number>
uint64_t checksum_of_number(Number number, uint64_t hash) {
    return pyg::checksum(&number, sizeof(number), hash);
}

// Throws Failure if the file cannot be read any more.
uint64_t with_samples_of(const std::string & path, uint64_t hash) {
    const pyg::GgufHeader header = pyg::read_gguf_header(path);
    const gguf_context *  raw    = header.raw.get();
    std::ifstream         file(std::filesystem::u8path(path), std::ios::binary);
    hash = checksum_of_number(header.file_size, hash);
    for (int64_t i = 0; i < gguf_get_n_tensors(raw); i++) {
        const uint64_t start = gguf_get_data_offset(raw) + gguf_get_tensor_offset(raw, i);
        const uint64_t size  = gguf_get_tensor_size(raw, i);
        const uint64_t n     = std::min(SAMPLE_SIZE, size - size / 2);
        for (const uint64_t at : {start, start + size / 2}) {
            std::array<char, SAMPLE_SIZE> sample;
            file.seekg(static_cast<std::streamoff>(at));
            if (!file.read(sample.data(), static_cast<std::streamsize>(n))) {
                throw pyg::fail(PYG_ERR_MODEL_LOAD, "%s cannot be read any more", path.c_str());
            }
            hash = pyg::checksum(sample.data(), n, hash);
        }
    }
    return hash;
}

// Numbers by which cells are computed and stored.
uint64_t with_settings_of(const pyg::Context & context, uint64_t hash) {
    const llama_context_params & params   = context.params();
    const llama_cparams &        resolved = context.raw->get_cparams();
    for (const int32_t type : {static_cast<int32_t>(params.type_k), static_cast<int32_t>(params.type_v)}) {
        hash = checksum_of_number(type, hash);
    }
    for (const float value : {resolved.rope_freq_base, resolved.rope_freq_scale, resolved.yarn_ext_factor,
                              resolved.yarn_attn_factor, resolved.yarn_beta_fast, resolved.yarn_beta_slow}) {
        hash = checksum_of_number(value, hash);
    }
    // Some models rotate positions in another way in contexts that are longer than their original one.
    const bool is_long = resolved.n_ctx_seq > resolved.n_ctx_orig_yarn;
    for (const bool flag : {resolved.flash_attn, resolved.offload_kqv, resolved.causal_attn, params.op_offload,
                            params.swa_full, is_long}) {
        hash = checksum_of_number(flag, hash);
    }
    return hash;
}

uint64_t with_devices_of(const llama_model & model, uint64_t hash) {
    for (uint32_t layer = 0; layer < model.hparams.n_layer_all; layer++) {
        const ggml_backend_dev_t device = model.dev_layer(static_cast<int>(layer));
        hash = checksum_of(ggml_backend_dev_description(device), checksum_of(ggml_backend_dev_name(device), hash));
    }
    const char * const without = pyg::no_kernels();
    hash                       = checksum_of(without ? without : "kernels of pyggml", hash);
    return checksum_of(llama_print_system_info(), hash);  // instruction sets
}

}  // namespace

namespace pyg {

uint64_t checksum(const void * data, size_t size, uint64_t hash) {
    constexpr uint64_t PRIME = 0x100000001b3ULL;
    const auto *       bytes = static_cast<const unsigned char *>(data);
    size_t             i     = 0;
    for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
        uint64_t word;
        std::memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * PRIME;
        hash ^= hash >> 32;
    }
    for (; i < size; i++) {
        hash = (hash ^ bytes[i]) * PRIME;
    }
    return hash;
}

uint64_t metadata_fingerprint(const Model & model) {
    const uint64_t sizes[] = {llama_model_n_params(model.raw), llama_model_size(model.raw),
                              static_cast<uint64_t>(model.n_vocab())};
    uint64_t       hash    = checksum(sizes, sizeof(sizes));
    for (int32_t i = 0; i < llama_model_meta_count(model.raw); i++) {
        char key[256] = "", value[256] = "";
        llama_model_meta_key_by_index(model.raw, i, key, sizeof(key));
        llama_model_meta_val_str_by_index(model.raw, i, value, sizeof(value));
        hash = checksum(key, std::strlen(key), hash);
        hash = checksum(value, std::strlen(value), hash);
    }
    return hash;
}

std::optional<uint64_t> cells_fingerprint(const Context & context) {
    uint64_t hash = metadata_fingerprint(*context.model);
    try {
        for (const std::string & path : parts_of(context.model->path)) {
            hash = with_samples_of(path, hash);
        }
    } catch (const Failure &) {
        return std::nullopt;
    }
    hash = with_settings_of(context, hash);
    hash = with_devices_of(*context.model->raw, hash);
    return checksum_of(pyg_engine_build(), checksum_of(pyg_version(), hash));
}

}  // namespace pyg
