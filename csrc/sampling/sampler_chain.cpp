#include "sampling/sampler_chain.hpp"

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstring>
#include <iterator>

namespace {

using pyg::fail;
using pyg::Model;
using pyg::require_in;
using pyg::SMALLEST_TEMPERATURE;
using pyg::UniqueSampler;

constexpr int32_t MIROSTAT_M = 100;  // tokens used by version 1, as in the paper

const char * const DEFAULT_ORDER[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typical_p",
                                      "top_p",     "min_p", "xtc",         "temperature"};

template <auto Member>
double value_of(const pyg_sampling & options) {
    return options.*Member;
}

struct Parameter {
    pyg_sampling_range range;
    double (*value)(const pyg_sampling & options);
};

// Ranges of all numeric parameters. Those of pyggml.SamplingParams are held equal by a test.
const Parameter PARAMETERS[] = {
    {{"temperature", 0, FLT_MAX}, value_of<&pyg_sampling::temperature>},
    {{"top_k", 0, INT_MAX}, value_of<&pyg_sampling::top_k>},
    {{"top_p", 0, 1}, value_of<&pyg_sampling::top_p>},
    {{"min_p", 0, 1}, value_of<&pyg_sampling::min_p>},
    {{"typical_p", 0, 1}, value_of<&pyg_sampling::typical_p>},
    {{"repeat_penalty", FLT_MIN, FLT_MAX}, value_of<&pyg_sampling::repeat_penalty>},
    {{"frequency_penalty", -FLT_MAX, FLT_MAX}, value_of<&pyg_sampling::frequency_penalty>},
    {{"presence_penalty", -FLT_MAX, FLT_MAX}, value_of<&pyg_sampling::presence_penalty>},
    {{"penalty_last_n", 0, INT_MAX}, value_of<&pyg_sampling::penalty_last_n>},
    {{"dynatemp_range", 0, FLT_MAX}, value_of<&pyg_sampling::dynatemp_range>},
    {{"dynatemp_exponent", 0, FLT_MAX}, value_of<&pyg_sampling::dynatemp_exponent>},
    {{"top_n_sigma", 0, FLT_MAX}, value_of<&pyg_sampling::top_n_sigma>},
    {{"xtc_probability", 0, 1}, value_of<&pyg_sampling::xtc_probability>},
    {{"xtc_threshold", 0, 1}, value_of<&pyg_sampling::xtc_threshold>},
    {{"dry_multiplier", 0, FLT_MAX}, value_of<&pyg_sampling::dry_multiplier>},
    {{"dry_base", 1, FLT_MAX}, value_of<&pyg_sampling::dry_base>},
    {{"dry_allowed_length", 0, INT_MAX}, value_of<&pyg_sampling::dry_allowed_length>},
    {{"dry_penalty_last_n", 0, INT_MAX}, value_of<&pyg_sampling::dry_penalty_last_n>},
    {{"mirostat", 0, 2}, value_of<&pyg_sampling::mirostat>},
    {{"mirostat_tau", 0, FLT_MAX}, value_of<&pyg_sampling::mirostat_tau>},
    {{"mirostat_eta", 0, FLT_MAX}, value_of<&pyg_sampling::mirostat_eta>},
    {{"adaptive_target", -1, 1}, value_of<&pyg_sampling::adaptive_target>},
    {{"adaptive_decay", 0, 0.99f}, value_of<&pyg_sampling::adaptive_decay>},
    {{"min_keep", 0, INT_MAX}, value_of<&pyg_sampling::min_keep>},
    {{"min_tokens", 0, INT_MAX}, value_of<&pyg_sampling::min_tokens>},
    {{"reasoning_budget", -1, INT_MAX}, value_of<&pyg_sampling::reasoning_budget>},
};

void require_valid(const pyg_sampling & options) {
    for (const Parameter & parameter : PARAMETERS) {
        const pyg_sampling_range & range = parameter.range;
        require_in(range.name, parameter.value(options), range.min, range.max);
    }
    for (int32_t i = 0; i < options.n_dry_breakers; i++) {
        pyg::require_breaker("each of dry_sequence_breakers", options.dry_breakers[i]);
    }
}

bool has_penalties(const pyg_sampling & options) {
    return options.penalty_last_n != 0 &&
           (options.repeat_penalty != 1.0f || options.frequency_penalty != 0.0f || options.presence_penalty != 0.0f);
}

// Factory of one request's samplers; null for those that are off.
class SamplerFactory {
  public:
    SamplerFactory(const Model & model, uint32_t n_ctx, const pyg_sampling & options)
        : model_(model), n_ctx_(n_ctx), o_(options) {}

    llama_sampler * create(const std::string & name) const {
        const auto min_keep = static_cast<size_t>(o_.min_keep);
        if (name == "penalties") {
            return penalties();
        }
        if (name == "dry") {
            return dry();
        }
        if (name == "top_n_sigma") {
            return o_.top_n_sigma > 0 ? llama_sampler_init_top_n_sigma(o_.top_n_sigma) : nullptr;
        }
        if (name == "top_k") {
            return o_.top_k > 0 ? llama_sampler_init_top_k(std::max(o_.top_k, o_.min_keep)) : nullptr;
        }
        if (name == "typical_p") {
            return o_.typical_p < 1 ? llama_sampler_init_typical(o_.typical_p, min_keep) : nullptr;
        }
        if (name == "top_p") {
            return o_.top_p < 1 ? llama_sampler_init_top_p(o_.top_p, min_keep) : nullptr;
        }
        if (name == "min_p") {
            return o_.min_p > 0 ? llama_sampler_init_min_p(o_.min_p, min_keep) : nullptr;
        }
        if (name == "xtc") {
            return o_.xtc_probability > 0
                       ? llama_sampler_init_xtc(o_.xtc_probability, o_.xtc_threshold, min_keep, o_.seed)
                       : nullptr;
        }
        if (name == "temperature") {
            return llama_sampler_init_temp_ext(o_.temperature, o_.dynatemp_range, o_.dynatemp_exponent);
        }
        throw fail(PYG_ERR_INVALID_PARAMETER, "there is no sampler \"%s\"", name.c_str());
    }

    // The sampler that selects one of the remaining candidates.
    llama_sampler * selector() const {
        if (o_.mirostat == 1) {
            return llama_sampler_init_mirostat(model_.n_vocab(), o_.seed, o_.mirostat_tau, o_.mirostat_eta, MIROSTAT_M);
        }
        if (o_.mirostat == 2) {
            return llama_sampler_init_mirostat_v2(o_.seed, o_.mirostat_tau, o_.mirostat_eta);
        }
        return o_.adaptive_target >= 0 ? llama_sampler_init_adaptive_p(o_.adaptive_target, o_.adaptive_decay, o_.seed)
                                       : llama_sampler_init_dist(o_.seed);
    }

  private:
    // Upstream allocates a ring buffer of this length.
    int32_t look_back(int32_t n) const { return static_cast<int32_t>(std::min<int64_t>(n, n_ctx_)); }

    llama_sampler * penalties() const {
        return has_penalties(o_)
                   ? llama_sampler_init_penalties(model_.n_vocab(), look_back(o_.penalty_last_n), o_.repeat_penalty,
                                                  o_.frequency_penalty, o_.presence_penalty)
                   : nullptr;
    }

    llama_sampler * dry() const {
        if (o_.dry_multiplier == 0 || o_.dry_penalty_last_n == 0) {
            return nullptr;
        }
        std::vector<const char *> breakers(o_.dry_breakers, o_.dry_breakers + o_.n_dry_breakers);
        const int32_t             last_n = look_back(o_.dry_penalty_last_n);
        return model_.samplers.copy(dry_key(last_n), [&] {  // upstream searches every token for the breakers
            return UniqueSampler(llama_sampler_init_dry(model_.vocab, o_.dry_multiplier, o_.dry_base,
                                                        o_.dry_allowed_length, last_n, breakers.data(),
                                                        breakers.size()));
        });
    }

    std::string dry_key(int32_t last_n) const {
        std::string key;
        for (const float number : {o_.dry_multiplier, o_.dry_base}) {
            key.append(reinterpret_cast<const char *>(&number), sizeof(number));
        }
        for (const int32_t number : {o_.dry_allowed_length, last_n}) {
            key.append(reinterpret_cast<const char *>(&number), sizeof(number));
        }
        for (int32_t i = 0; i < o_.n_dry_breakers; i++) {
            key += std::string(o_.dry_breakers[i]) + '\0';
        }
        return key;
    }

    const Model &        model_;
    const uint32_t       n_ctx_;
    const pyg_sampling & o_;
};

std::vector<std::string> order(const pyg_sampling & options) {
    if (options.temperature < SMALLEST_TEMPERATURE) {
        return {"penalties", "dry"};  // the others never change the likeliest token
    }
    if (options.mirostat != 0) {
        return {"penalties", "dry", "temperature"};
    }
    if (!options.samplers) {
        return {std::begin(DEFAULT_ORDER), std::end(DEFAULT_ORDER)};
    }
    return {options.samplers, options.samplers + options.n_samplers};
}

}  // namespace

namespace pyg {

void require_in(const char * name, double value, double low, double high) {
    if (!(value >= low && value <= high)) {  // also true for NaN
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be between %g and %g, not %g", name, low, high, value);
    }
}

void require_breaker(const char * name, const char * breaker) {
    constexpr size_t MAX_BYTES = 40;  // upstream would truncate a longer one, perhaps inside a character
    const size_t     n         = std::strlen(breaker);
    if (n == 0 || n > MAX_BYTES) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must have 1 to %zu bytes, but \"%s\" has %zu", name, MAX_BYTES,
                   breaker, n);
    }
}

std::vector<llama_logit_bias> make_biases(const Model & model, const pyg_sampling & options) {
    std::vector<llama_logit_bias> result;
    for (int32_t i = 0; i < options.n_bias; i++) {
        model.require_token(options.bias_token_ids[i], i);
        const float bias = options.bias_values[i];
        if (std::isnan(bias) || bias == INFINITY) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the logit bias of token %d is %f; it must be a number or -inf",
                       options.bias_token_ids[i], bias);
        }
        result.push_back({options.bias_token_ids[i], bias});
    }
    int32_t             n        = 0;
    const llama_token * suppress = llama_vocab_get_suppress_tokens(model.vocab, &n);
    std::for_each(suppress, suppress + n, [&](llama_token id) { result.push_back({id, -INFINITY}); });
    return result;
}

UniqueSampler make_sampler_chain(const Model & model, uint32_t n_ctx, const pyg_sampling & options) {
    require_valid(options);
    UniqueSampler chain = new_sampler_chain();
    const auto    add   = [&](llama_sampler * sampler) {
        if (sampler) {
            llama_sampler_chain_add(chain.get(), sampler);
        }
    };
    const SamplerFactory make(model, n_ctx, options);
    for (const std::string & name : order(options)) {
        add(make.create(name));
    }
    const bool greedy = options.temperature < SMALLEST_TEMPERATURE;
    if (greedy && llama_sampler_chain_n(chain.get()) == 0) {
        return nullptr;
    }
    add(greedy ? llama_sampler_init_greedy() : make.selector());
    return chain;
}

}  // namespace pyg

bool pyg_sampling_range_get(int32_t index, pyg_sampling_range * out) {
    if (index < 0 || static_cast<size_t>(index) >= std::size(PARAMETERS)) {
        return false;
    }
    *out = PARAMETERS[index].range;
    return true;
}

const char * pyg_sampler_order(int32_t index) {
    return index >= 0 && static_cast<size_t>(index) < std::size(DEFAULT_ORDER) ? DEFAULT_ORDER[index] : nullptr;
}
