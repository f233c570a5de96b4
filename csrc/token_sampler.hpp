// How the tokens of one request are chosen.
#pragma once

#include "handles.hpp"
#include "sampling.h"

namespace pyg {

// What is sampled from each row of logits: upstream's sampler, or a plain argmax where that is all it would do.
class TokenSampler {
  public:
    // PYG_ERR_GRAMMAR, PYG_ERR_INVALID_PARAMETER
    // `n_ctx` bounds what the penalties can look back at.
    TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options);

    // Samples from the row of batch index `index` of the context's last decode.
    // PYG_ERR_GRAMMAR or PYG_ERR_INVALID_PARAMETER when the options together leave no token to choose.
    int32_t sample(llama_context * context, int32_t n_vocab, int32_t index);

    // What the penalties look back at before anything is generated.
    void accept_prompt(const std::vector<int32_t> & prompt);

  private:
    int32_t choose(llama_context * context, int32_t index);

    common_sampler_ptr sampler_;  // null: greedy without anything that changes the logits
    bool               has_grammar_ = false;
};

}  // namespace pyg
