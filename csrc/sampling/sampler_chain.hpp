// A request's samplers, in order, as an upstream sampler chain.
#pragma once

#include "boundary/handles.hpp"

#include <vector>

namespace pyg {

constexpr float SMALLEST_TEMPERATURE = 1e-6f;  // dividing by less overflows; the limit is greedy

// PYG_ERR_INVALID_PARAMETER, naming the parameter, also for NaN.
void require_in(const char * name, double value, double low, double high);

// PYG_ERR_INVALID_PARAMETER unless a DRY sequence breaker has 1 to 40 bytes.
void require_breaker(const char * name, const char * breaker);

// Biases added to the logits before the chain runs: the caller's, and those of the vocabulary's suppressed tokens.
// PYG_ERR_INVALID_PARAMETER
std::vector<llama_logit_bias> make_biases(const Model & model, const pyg_sampling & options);

// Validate the options, except grammar and biases, and create the chain. Null for plain greedy sampling. `n_ctx` limits
// how far samplers look back. PYG_ERR_INVALID_PARAMETER.
UniqueSampler make_sampler_chain(const Model & model, uint32_t n_ctx, const pyg_sampling & options);

}  // namespace pyg
