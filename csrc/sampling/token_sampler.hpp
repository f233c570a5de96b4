// How the tokens of one request are chosen.
#pragma once

#include "sampling/grammar/lazy_grammar.hpp"
#include "sampling/sampler_chain.hpp"

namespace pyg {

// Samples from a row of logits: biases change it, the grammar gives the candidates, and a chain of samplers chooses
// among them. Without the last two it is a plain argmax.
class TokenSampler {
  public:
    // `n_ctx` limits how far the penalties look back. `stop_token_ids`, sorted, end the generation.
    // PYG_ERR_GRAMMAR, PYG_ERR_INVALID_PARAMETER
    TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options,
                 const std::vector<int32_t> & stop_token_ids);

    // Samples from a row of logits, which is as before when it returns. Any thread may call.
    // PYG_ERR_GRAMMAR or PYG_ERR_INVALID_PARAMETER when the options together leave no token to choose.
    int32_t sample(float * row, int32_t n_vocab);

    // Whether it takes the largest logit, whatever came before.
    bool is_plain_greedy() const { return !chain_ && biases_.empty() && !grammar_; }

    // Gives the penalties the prompt to look back at.
    void accept_prompt(const std::vector<int32_t> & prompt);

  private:
    bool    is_constrained() const { return grammar_ && grammar_->is_active(); }
    int32_t sample_greedy(const float * row, int32_t n_vocab);
    int32_t sample_chain(const float * row, int32_t n_vocab);
    void    collect(const float * row, int32_t n_vocab);

    [[noreturn]] void fail_no_token() const;

    SamplerChain                       chain_;  // null: greedy, and nothing but the biases changes the logits
    std::vector<llama_logit_bias>      biases_;
    std::unique_ptr<GrammarConstraint> grammar_;
};

}  // namespace pyg
