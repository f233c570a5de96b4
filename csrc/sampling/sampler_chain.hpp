// Builds a request's samplers, in order, as one of upstream's chains.
#pragma once

#include "boundary/handles.hpp"

#include <vector>

namespace pyg {

constexpr size_t MAX_BREAKER_BYTES    = 40;     // upstream would cut a longer one, perhaps inside a character
constexpr float  SMALLEST_TEMPERATURE = 1e-6f;  // below, dividing by it overflows; the limit is greedy anyway

// PYG_ERR_INVALID_PARAMETER that names the parameter, also when the value is NaN.
void require_in(const char * name, double value, double low, double high);

using SamplerChain = UniqueSampler;

// What is added to logits before the chain sees them: the caller's biases and the vocabulary's suppressed tokens.
// PYG_ERR_INVALID_PARAMETER
std::vector<llama_logit_bias> make_biases(const Model & model, const pyg_sampling & options);

// Checks the options, except the grammar and the biases, and makes the chain. Null if it would only take the likeliest
// token. `n_ctx` limits how far samplers look back. PYG_ERR_INVALID_PARAMETER.
SamplerChain make_sampler_chain(const Model & model, uint32_t n_ctx, const pyg_sampling & options);

}  // namespace pyg
