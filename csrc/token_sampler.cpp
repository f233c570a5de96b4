#include "token_sampler.hpp"

#include "grammar.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

using pyg::fail;

void require_finite(const char * name, double value) {
    if (!std::isfinite(value)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be a finite number, not %f", name, value);
    }
}

void require_range(const char * name, double value, double low, double high) {
    if (!(value >= low && value <= high)) {  // also refuses NaN
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be between %g and %g, not %g", name, low, high, value);
    }
}

void require_not_negative(const char * name, int64_t value) {
    if (value < 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be 0 or more, not %lld", name, static_cast<long long>(value));
    }
}

void require_valid(const pyg_sampling & options) {
    require_finite("temperature", options.temperature);
    require_range("temperature", options.temperature, 0, std::numeric_limits<float>::max());
    require_not_negative("top_k", options.top_k);
    require_range("top_p", options.top_p, 0, 1);
    require_range("min_p", options.min_p, 0, 1);
    require_range("typical_p", options.typical_p, 0, 1);
    require_finite("repeat_penalty", options.repeat_penalty);
    if (!(options.repeat_penalty > 0)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "repeat_penalty must be above 0, not %g", options.repeat_penalty);
    }
    require_finite("frequency_penalty", options.frequency_penalty);
    require_finite("presence_penalty", options.presence_penalty);
    require_not_negative("penalty_last_n", options.penalty_last_n);
}

bool has_penalties(const pyg_sampling & options) {
    return options.penalty_last_n != 0 &&
           (options.repeat_penalty != 1.0f || options.frequency_penalty != 0.0f || options.presence_penalty != 0.0f);
}

bool suppresses_tokens(const llama_vocab * vocab) {
    int32_t n = 0;
    llama_vocab_get_suppress_tokens(vocab, &n);
    return n > 0;
}

common_params_sampling upstream_params(const pyg::Model & model, uint32_t n_ctx, const pyg_sampling & options) {
    common_params_sampling params;
    params.no_perf = true;
    params.seed    = options.seed;
    params.temp    = options.temperature;
    params.top_k   = options.top_k;
    params.top_p   = options.top_p;
    params.min_p   = options.min_p;
    params.typ_p   = options.typical_p;
    // Upstream makes a ring of this length, however few tokens there will be.
    params.penalty_last_n =
        has_penalties(options) ? static_cast<int32_t>(std::min<int64_t>(options.penalty_last_n, n_ctx)) : 0;
    params.penalty_repeat  = options.repeat_penalty;
    params.penalty_freq    = options.frequency_penalty;
    params.penalty_present = options.presence_penalty;
    for (int32_t i = 0; i < options.n_bias; i++) {
        model.require_token(options.bias_token_ids[i], i);
        const float bias = options.bias_values[i];
        if (std::isnan(bias) || bias == INFINITY) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the logit bias of token %d is %f; it must be a number or -inf",
                       options.bias_token_ids[i], bias);
        }
        params.logit_bias.push_back({options.bias_token_ids[i], options.bias_values[i]});
    }
    if (options.grammar) {
        pyg::require_grammar(model.vocab, options.grammar, options.grammar_root);
        params.grammar      = common_grammar(COMMON_GRAMMAR_TYPE_USER, options.grammar);
        params.grammar_lazy = options.grammar_lazy;
        for (int32_t i = 0; i < options.n_trigger_patterns; i++) {
            params.grammar_triggers.push_back(
                {COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN, options.trigger_patterns[i], LLAMA_TOKEN_NULL});
        }
        for (int32_t i = 0; i < options.n_trigger_tokens; i++) {
            model.require_token(options.trigger_token_ids[i], i);
            params.grammar_triggers.push_back(
                {COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN, "", options.trigger_token_ids[i]});
        }
    }
    return params;
}

// The largest of `n` floats, NaNs aside. Sixteen running maxima, since the compiler may not reorder a single one.
float maximum(const float * values, int32_t n) {
    constexpr int32_t LANES = 16;
    float             lanes[LANES];
    std::fill_n(lanes, LANES, -std::numeric_limits<float>::infinity());
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int32_t lane = 0; lane < LANES; lane++) {
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
        }
    }
    for (; i < n; i++) {
        lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
    }
    return *std::max_element(lanes, lanes + LANES);
}

// The first index of the largest value. Runs for every token of a greedy generation, so the vocabulary is walked
// in blocks and only the winning block is searched for the place.
int32_t argmax(const float * row, int32_t n) {
    constexpr int32_t BLOCK = 512;
    float             best  = -std::numeric_limits<float>::infinity();
    int32_t           where = -1;
    for (int32_t first = 0; first < n; first += BLOCK) {
        const float block_best = maximum(row + first, std::min(BLOCK, n - first));
        if (block_best > best) {
            best  = block_best;
            where = first;
        }
    }
    if (where < 0) {
        throw fail(PYG_ERR_ENGINE, "the model produced logits that are no numbers: the weights are damaged");
    }
    return static_cast<int32_t>(std::find(row + where, row + n, best) - row);
}

// Upstream's samplers sort and exponentiate what they are given, and neither bears these.
void require_usable(const float * row, int32_t n) {
    if (!std::all_of(row, row + n, [](float logit) { return logit < INFINITY; })) {
        throw fail(PYG_ERR_ENGINE, "the model produced logits that are no numbers: the weights are damaged");
    }
}

}  // namespace

namespace pyg {

TokenSampler::TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options)
    : has_grammar_(options.grammar) {
    require_valid(options);
    const bool plain_greedy = options.temperature == 0.0f && options.n_bias == 0 && !options.grammar &&
                              !has_penalties(options) && !suppresses_tokens(model.vocab);
    if (plain_greedy) {
        return;
    }
    common_params_sampling params = upstream_params(model, n_ctx, options);
    try {
        sampler_.reset(common_sampler_init(model.raw, params));
    } catch (const std::exception & e) {
        const std::string words = engine_words();
        throw fail(options.grammar ? PYG_ERR_GRAMMAR : PYG_ERR_INVALID_PARAMETER, "%s%s%s", e.what(),
                   words.empty() ? "" : ": ", words.c_str());
    }
}

int32_t TokenSampler::sample(llama_context * context, int32_t n_vocab, int32_t index) {
    const float * row = llama_get_logits_ith(context, index);
    if (!sampler_) {
        return argmax(row, n_vocab);
    }
    require_usable(row, n_vocab);
    try {
        return choose(context, index);
    } catch (const EngineAbort & abort) {
        // The sampler is in an unknown state and is leaked; the context was only read.
        (void) sampler_.release();
        throw fail(PYG_ERR_ENGINE, "a check inside the sampler failed: %s", abort.message.c_str());
    }
}

int32_t TokenSampler::choose(llama_context * context, int32_t index) {
    const int32_t                  token_id   = common_sampler_sample(sampler_.get(), context, index);
    const llama_token_data_array * candidates = common_sampler_get_candidates(sampler_.get(), false);
    const llama_token_data &       chosen     = candidates->data[candidates->selected];
    if (!std::isfinite(chosen.logit) || std::isnan(chosen.p)) {
        throw fail(has_grammar_ ? PYG_ERR_GRAMMAR : PYG_ERR_INVALID_PARAMETER,
                   "grammar, logit_bias, penalties and temperature together leave no token to choose");
    }
    common_sampler_accept(sampler_.get(), token_id, true);
    return token_id;
}

void TokenSampler::accept_prompt(const std::vector<int32_t> & prompt) {
    for (size_t i = 0; sampler_ && i < prompt.size(); i++) {
        common_sampler_accept(sampler_.get(), prompt[i], false);
    }
}

}  // namespace pyg
