// How the tokens of one request are chosen.
#pragma once

#include "grammar/grammar_follower.hpp"
#include "objects/sampler_chain.hpp"

namespace pyg {

// What is sampled from each row of logits: the grammar says which tokens there are, and a chain of samplers chooses
// among them. Where both have nothing to say it is a plain argmax.
class TokenSampler {
  public:
    // `n_ctx` bounds what the penalties can look back at. `stop_token_ids`, sorted, end the generation.
    // PYG_ERR_GRAMMAR, PYG_ERR_INVALID_PARAMETER
    TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options,
                 const std::vector<int32_t> & stop_token_ids);

    // Samples from the row of batch index `index` of the context's last decode.
    // PYG_ERR_GRAMMAR or PYG_ERR_INVALID_PARAMETER when the options together leave no token to choose.
    int32_t sample(llama_context * context, int32_t n_vocab, int32_t index);

    // What the penalties look back at before anything is generated.
    void accept_prompt(const std::vector<int32_t> & prompt);

  private:
    bool    is_constrained() const { return follower_ && follower_->is_active(); }
    int32_t likeliest(const float * row, int32_t n_vocab);
    int32_t choose(const float * row, int32_t n_vocab);
    void    collect(const float * row, int32_t n_vocab);

    SamplerChain                     chain_;  // null: greedy without anything that changes the logits
    std::unique_ptr<GrammarFollower> follower_;
    std::vector<llama_token_data>    candidates_;
};

}  // namespace pyg
