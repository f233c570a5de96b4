// Builds a request's samplers, in order, as one of upstream's chains.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

struct ChainDeleter {
    void operator()(llama_sampler * chain) const { llama_sampler_free(chain); }
};

using SamplerChain = std::unique_ptr<llama_sampler, ChainDeleter>;

// Checks the options, except the grammar, and makes the chain. Null if it would only take the likeliest token. `n_ctx`
// limits how far samplers look back. PYG_ERR_INVALID_PARAMETER.
SamplerChain make_sampler_chain(const Model & model, uint32_t n_ctx, const pyg_sampling & options);

}  // namespace pyg
