#include "sampling/device_sampler.hpp"

#include "context/forward.hpp"
#include "ggml.h"
#include "llama-model.h"
#include "sampling/logprobs.hpp"

#include <algorithm>
#include <cstring>

namespace {

// Greedy steps before the first switch; doubled each time it has to be switched off.
constexpr int32_t PATIENCE = 8, PATIENCE_MAX = 4096;

// Longest row whose indices are exact as floats.
constexpr int64_t MAX_VOCAB = 1 << 24;

bool supports(ggml_backend_dev_t device, int64_t n_vocab) {
    constexpr size_t       MAX_NODES = 64;
    const ggml_init_params params    = {MAX_NODES * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    const ggml_context_ptr context(ggml_init(params));
    ggml_cgraph *          graph  = ggml_new_graph(context.get());
    constexpr int64_t      N_ROWS = 2;
    ggml_build_forward_expand(
        graph, pyg::argmax_first(context.get(), ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n_vocab, N_ROWS)));
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        if (!ggml_backend_dev_supports_op(device, ggml_graph_node(graph, i))) {
            return false;
        }
    }
    return true;
}

}  // namespace

namespace pyg {

ggml_tensor * argmax_first(ggml_context * graph, ggml_tensor * rows) {
    constexpr float FAR    = 1e38F;
    const int64_t   n      = rows->ne[0];
    const int64_t   n_rows = rows->ne[1];

    // Maximum of each row. Some devices return -1 if there is none.
    ggml_tensor * likeliest = ggml_cast(graph, ggml_argmax(graph, rows), GGML_TYPE_F32);
    likeliest = ggml_cast(graph, ggml_clamp(graph, likeliest, 0, static_cast<float>(n - 1)), GGML_TYPE_I32);
    ggml_tensor * largest =
        ggml_get_rows(graph, ggml_reshape_3d(graph, rows, 1, n, n_rows), ggml_reshape_2d(graph, likeliest, 1, n_rows));
    largest = ggml_reshape_2d(graph, largest, 1, n_rows);

    // 0, -1, -2 ... at the maxima and far less elsewhere, so that the first maximum is unique.
    ggml_tensor * below = ggml_scale(graph, ggml_sub(graph, rows, largest), FAR);
    ggml_tensor * order = ggml_sub(graph, below, ggml_arange(graph, 0, static_cast<float>(n), 1));
    ggml_tensor * first = ggml_cast(graph, ggml_argmax(graph, order), GGML_TYPE_F32);

    ggml_tensor * not_a_number = ggml_reshape_1d(graph, ggml_sub(graph, largest, largest), n_rows);
    return ggml_add(graph, first, not_a_number);
}

// Callbacks that upstream calls for each sequence while it builds a graph. Each gets one row of all logits; the first
// call computes the argmax of all rows at once, which is as fast as one.
struct DeviceSamplerHooks {
    static DeviceSampler & self(llama_sampler * sampler) { return *static_cast<DeviceSampler *>(sampler->ctx); }

    static llama_sampler_i all() {  // without `free`: the sampler is owned by its DeviceSampler
        llama_sampler_i hooks = {};
        hooks.name            = [](const llama_sampler *) { return "first-maximum"; };
        hooks.apply           = [](llama_sampler *, llama_token_data_array *) {};
        hooks.backend_init    = [](llama_sampler *, ggml_backend_buffer_type_t, uint32_t) { return true; };
        hooks.backend_apply   = add;
        hooks.backend_reset   = forget;
        return hooks;
    }

    static void forget(llama_sampler * sampler) { self(sampler).rows_ = nullptr; }

    static void add(llama_sampler * sampler, ggml_context * graph, ggml_cgraph *, llama_sampler_data * data) {
        DeviceSampler & own  = self(sampler);
        ggml_tensor *   rows = data->logits->view_src ? data->logits->view_src : data->logits;
        if (own.rows_ != rows) {
            own.rows_  = rows;
            own.first_ = argmax_first(graph, rows);
        }
        const size_t row = data->logits->view_offs / rows->nb[1];
        data->sampled    = ggml_view_1d(graph, own.first_, 1, row * sizeof(float));
        data->logits     = nullptr;  // otherwise they would be copied too
    }
};

DeviceSampler::DeviceSampler(Context & context, bool wanted) : context_(context), patience_(PATIENCE) {
    const int64_t n_vocab = context.model->n_vocab();
    may_                  = wanted && n_vocab <= MAX_VOCAB && supports(context.model->raw->dev_output(), n_vocab);
}

void DeviceSampler::prepare(bool greedy) {
    n_greedy_ = greedy ? n_greedy_ + 1 : 0;
    if (is_on() && !greedy) {
        switch_off();
        patience_ = std::min(2 * patience_, PATIENCE_MAX);
    } else if (may_ && !is_on() && n_greedy_ > patience_) {
        switch_on();
    }
}

void DeviceSampler::disable() {
    switch_off();
    may_ = false;
}

void DeviceSampler::switch_on() {
    static llama_sampler_i hooks = DeviceSamplerHooks::all();
    for (uint32_t seq_id = 0; seq_id < llama_n_seq_max(context_.raw); seq_id++) {
        UniqueSampler chain = new_sampler_chain();
        llama_sampler_chain_add(chain.get(), llama_sampler_init(&hooks, this));
        may_ = may_ && llama_set_sampler(context_.raw, static_cast<llama_seq_id>(seq_id), chain.get());
        samplers_.push_back(std::move(chain));
    }
    if (!may_) {
        switch_off();  // not supported by upstream with this split mode
    }
}

void DeviceSampler::switch_off() {
    for (size_t i = 0; i < samplers_.size(); i++) {
        llama_set_sampler(context_.raw, static_cast<llama_seq_id>(i), nullptr);
    }
    samplers_.clear();
}

int32_t DeviceSampler::token(int32_t index) {
    const llama_token bits = sampled_token_of_last(context_, index);
    float             token_id;
    static_assert(sizeof(token_id) == sizeof(bits));
    std::memcpy(&token_id, &bits, sizeof(bits));
    if (!(token_id >= 0 && token_id < static_cast<float>(context_.model->n_vocab()))) {
        fail_invalid_logits();
    }
    n_sampled_++;
    return static_cast<int32_t>(token_id);
}

}  // namespace pyg
