#include "sampling/device_sampler.hpp"

#include "context/forward.hpp"
#include "ggml.h"
#include "llama-model.h"
#include "sampling/logprobs.hpp"

#include <algorithm>
#include <cstring>

namespace {

// Steps before the first switch; doubled each time it has to be switched off.
constexpr int32_t PATIENCE = 8, PATIENCE_MAX = 4096;

// Steps of greedy requests only after which likeliest tokens are no longer computed.
constexpr int32_t GREEDY_STEPS = 512;

// Candidates of a row: most chains keep fewer, and a device finds them as fast as one.
constexpr int64_t N_CANDIDATES = 256;
constexpr int64_t N_MORE       = 3;  // numbers in a summary that are not of a candidate

// Longest row whose indices are exact as floats.
constexpr int64_t MAX_VOCAB = 1 << 24;

template <class Build>
bool supports(ggml_backend_dev_t device, int64_t n_vocab, Build && build) {
    constexpr size_t       MAX_NODES = 64;
    const ggml_init_params params    = {MAX_NODES * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    const ggml_context_ptr context(ggml_init(params));
    ggml_cgraph *          graph  = ggml_new_graph(context.get());
    constexpr int64_t      N_ROWS = 2;
    ggml_build_forward_expand(graph,
                              build(context.get(), ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n_vocab, N_ROWS)));
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        if (!ggml_backend_dev_supports_op(device, ggml_graph_node(graph, i))) {
            return false;
        }
    }
    return true;
}

// Maxima of rows, and where they are.
struct Maxima {
    ggml_tensor * below;  // logits less the largest of their row
    ggml_tensor * first;  // index of the first maximum, as argmax_first
};

Maxima maxima_of(ggml_context * graph, ggml_tensor * rows) {
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
    ggml_tensor * below = ggml_sub(graph, rows, largest);
    ggml_tensor * order =
        ggml_sub(graph, ggml_scale(graph, below, FAR), ggml_arange(graph, 0, static_cast<float>(n), 1));
    ggml_tensor * first = ggml_cast(graph, ggml_argmax(graph, order), GGML_TYPE_F32);

    ggml_tensor * not_a_number = ggml_reshape_1d(graph, ggml_sub(graph, largest, largest), n_rows);
    return {below, ggml_add(graph, first, not_a_number)};
}

}  // namespace

namespace pyg {

ggml_tensor * argmax_first(ggml_context * graph, ggml_tensor * rows) { return maxima_of(graph, rows).first; }

ggml_tensor * summarize_rows(ggml_context * graph, ggml_tensor * rows, int64_t k) {
    const int64_t n      = rows->ne[0];
    const int64_t n_rows = rows->ne[1];
    const Maxima  maxima = maxima_of(graph, rows);
    ggml_tensor * ids    = ggml_top_k(graph, rows, static_cast<int>(k));
    ggml_tensor * logits = ggml_get_rows(graph, ggml_reshape_3d(graph, rows, 1, n, n_rows), ids);
    ggml_tensor * sum    = ggml_sum_rows(graph, ggml_exp(graph, maxima.below));
    ggml_tensor * index  = ggml_arange(graph, 0, static_cast<float>(n_rows), 1);
    ggml_tensor * result =
        ggml_concat(graph, ggml_cast(graph, ids, GGML_TYPE_F32), ggml_reshape_2d(graph, logits, k, n_rows), 0);
    for (ggml_tensor * one : {maxima.first, sum, index}) {
        result = ggml_concat(graph, result, ggml_reshape_2d(graph, one, 1, n_rows), 0);
    }
    return result;
}

// Callbacks that upstream calls for each sequence while it builds a graph. Each gets one row of all logits; the first
// call computes the results of all rows at once, which is as fast as one.
struct DeviceSamplerHooks {
    static DeviceSampler & self(llama_sampler * sampler) { return *static_cast<DeviceSampler *>(sampler->ctx); }

    static llama_sampler_i all() {  // without `free`: the sampler is owned by its DeviceSampler
        llama_sampler_i hooks = {};
        hooks.name            = [](const llama_sampler *) { return "largest-logits"; };
        hooks.apply           = [](llama_sampler *, llama_token_data_array *) {};
        hooks.backend_init    = [](llama_sampler *, ggml_backend_buffer_type_t, uint32_t) { return true; };
        hooks.backend_apply   = add;
        hooks.backend_reset   = forget;
        return hooks;
    }

    static void forget(llama_sampler * sampler) { self(sampler).rows_ = nullptr; }

    static void add(llama_sampler * sampler, ggml_context * graph, ggml_cgraph *, llama_sampler_data * data) {
        DeviceSampler & own   = self(sampler);
        const bool      ranks = own.mode_ == DeviceSampler::Mode::LIKELIEST;
        ggml_tensor *   rows  = data->logits->view_src ? data->logits->view_src : data->logits;
        if (own.rows_ != rows) {
            own.rows_  = rows;
            own.found_ = ranks ? summarize_rows(graph, rows, own.k_) : argmax_first(graph, rows);
        }
        // Upstream copies what is attached here.
        const size_t row = data->logits->view_offs / rows->nb[1];
        if (ranks) {
            data->probs = ggml_view_1d(graph, own.found_, own.found_->ne[0], row * own.found_->nb[1]);
        } else {
            data->sampled = ggml_view_1d(graph, own.found_, 1, row * sizeof(float));
        }
        data->logits = nullptr;
    }
};

// Upstream has space for a row of logits where it copies a summary to.
DeviceSampler::DeviceSampler(Context & context, bool wanted, bool ranks)
    : context_(context), k_(std::min(N_CANDIDATES, (context.model->n_vocab() - N_MORE) / 2)), patience_(PATIENCE) {
    const int64_t      n_vocab = context.model->n_vocab();
    ggml_backend_dev_t device  = context.model->raw->dev_output();
    if (!wanted || n_vocab > MAX_VOCAB || !supports(device, n_vocab, argmax_first)) {
        return;
    }
    const auto summarize = [&](ggml_context * graph, ggml_tensor * rows) { return summarize_rows(graph, rows, k_); };
    most_                = ranks && k_ > 0 && supports(device, n_vocab, summarize) ? Mode::LIKELIEST : Mode::LARGEST;
}

DeviceSampler::Mode DeviceSampler::mode_for(LogitsNeed need) const {
    const Mode mode = need == LogitsNeed::LARGEST     ? Mode::LARGEST
                      : need == LogitsNeed::LIKELIEST ? Mode::LIKELIEST
                                                      : Mode::OFF;
    return mode <= most_ ? mode : Mode::OFF;
}

void DeviceSampler::prepare(LogitsNeed need) {
    const Mode mode = mode_for(need);
    n_steps_        = mode == mode_ ? 0 : n_steps_ + 1;
    if (mode == Mode::OFF) {
        n_steps_ = 0;
        if (is_on()) {
            postpone();
        }
    } else if (!is_on()) {
        if (n_steps_ > patience_) {
            switch_to(mode);
        }
    } else if (mode > mode_ || n_steps_ > GREEDY_STEPS) {
        switch_to(mode);
    }
}

void DeviceSampler::postpone() {
    switch_off();
    patience_ = std::min(2 * patience_, PATIENCE_MAX);
}

void DeviceSampler::detach() {
    switch_off();
    rows_ = found_ = nullptr;
}

void DeviceSampler::disable() {
    switch_off();
    most_ = Mode::OFF;
}

void DeviceSampler::switch_to(Mode mode) {
    static llama_sampler_i hooks = DeviceSamplerHooks::all();
    switch_off();
    mode_          = mode;
    bool supported = true;
    for (uint32_t seq_id = 0; seq_id < llama_n_seq_max(context_.raw); seq_id++) {
        UniqueSampler chain = new_sampler_chain();
        llama_sampler_chain_add(chain.get(), llama_sampler_init(&hooks, this));
        supported = supported && llama_set_sampler(context_.raw, static_cast<llama_seq_id>(seq_id), chain.get());
        samplers_.push_back(std::move(chain));
    }
    if (!supported) {
        disable();  // by upstream, with this split mode
    }
}

void DeviceSampler::switch_off() {
    for (size_t i = 0; i < samplers_.size(); i++) {
        llama_set_sampler(context_.raw, static_cast<llama_seq_id>(i), nullptr);
    }
    samplers_.clear();
    mode_    = Mode::OFF;
    n_steps_ = 0;
}

DeviceRow DeviceSampler::row(int32_t index) {
    DeviceRow row;
    if (mode_ == Mode::LIKELIEST) {
        row.summary = llama_get_sampled_probs_ith(context_.raw, index);
        row.first   = row.summary ? row.summary[2 * k_] : NAN;
    } else {
        const llama_token bits = sampled_token_of_last(context_, index);
        static_assert(sizeof(row.first) == sizeof(bits));
        std::memcpy(&row.first, &bits, sizeof(bits));
    }
    return row;
}

int32_t DeviceSampler::token(const DeviceRow & row) const {
    if (!(row.first >= 0 && row.first < static_cast<float>(context_.model->n_vocab()))) {
        fail_invalid_logits();
    }
    return static_cast<int32_t>(row.first);
}

bool DeviceSampler::shortlist(const DeviceRow & row, Shortlist & out) const {
    if (!row.summary || !std::isfinite(row.summary[2 * k_ + 1])) {
        return false;
    }
    const float * const logits = row.summary + k_;
    out.candidates.resize(static_cast<size_t>(k_));
    for (int64_t i = 0; i < k_; i++) {
        out.candidates[static_cast<size_t>(i)] = {static_cast<llama_token>(row.summary[i]), logits[i], 0};
    }
    out.bound = *std::min_element(logits, logits + k_);
    out.sum   = row.summary[2 * k_ + 1];
    return true;
}

bool DeviceSampler::fetch(int32_t index, const DeviceRow & row, size_t n_rows) {
    const ggml_tensor * const all = rows_ ? rows_->src[0] : nullptr;  // without the row that upstream pads them with
    if (!row.summary || !all || static_cast<size_t>(all->ne[1]) != n_rows) {
        return false;
    }
    const auto where = static_cast<size_t>(row.summary[2 * k_ + 2]);
    ggml_backend_tensor_get(all, llama_get_logits_ith(context_.raw, index), where * all->nb[1], all->nb[1]);
    return true;
}

}  // namespace pyg
