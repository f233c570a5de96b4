#include "context/fingerprint.hpp"

#include "llama-context.h"
#include "llama-model.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace {

// Samples of a model's file. A fine-tuned model differs from its base in almost all of its weights.
constexpr uint64_t N_SAMPLES = 32, SAMPLE_SIZE = 4096;

uint64_t checksum_of(const char * text, uint64_t hash) { return pyg::checksum(text, std::strlen(text), hash); }

template <class Number>
uint64_t checksum_of_number(Number number, uint64_t hash) {
    return pyg::checksum(&number, sizeof(number), hash);
}

std::optional<uint64_t> with_samples_of(const std::string & path, uint64_t hash) {
    const std::filesystem::path file_path = std::filesystem::u8path(path);
    std::error_code             error;
    const uint64_t              size = std::filesystem::file_size(file_path, error);
    std::ifstream               file(file_path, std::ios::binary);
    if (error || !file) {
        return std::nullopt;
    }
    hash = checksum_of_number(size, hash);
    for (uint64_t i = 0; i < N_SAMPLES; i++) {
        std::array<char, SAMPLE_SIZE> sample;
        file.clear();  // the end of the file was reached by a sample that began near it
        file.seekg(static_cast<std::streamoff>(size / N_SAMPLES * i));
        file.read(sample.data(), sample.size());
        if (file.gcount() == 0 && size > 0) {
            return std::nullopt;
        }
        hash = pyg::checksum(sample.data(), static_cast<size_t>(file.gcount()), hash);
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
        hash = checksum_of(ggml_backend_dev_name(model.dev_layer(static_cast<int>(layer))), hash);
    }
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
    std::optional<uint64_t> hash = metadata_fingerprint(*context.model);
    for (const std::string & path : parts_of(context.model->path)) {
        hash = with_samples_of(path, *hash);
        if (!hash) {
            return hash;
        }
    }
    hash = with_settings_of(context, *hash);
    hash = with_devices_of(*context.model->raw, *hash);
    return checksum_of(pyg_engine_build(), checksum_of(pyg_version(), *hash));
}

}  // namespace pyg
