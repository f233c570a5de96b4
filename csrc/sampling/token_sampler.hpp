// Sampling for one request.
#pragma once

#include "sampling/grammar/lazy_grammar.hpp"
#include "sampling/logprobs.hpp"
#include "sampling/reasoning_budget.hpp"
#include "sampling/sampler_chain.hpp"
#include "sampling/shortlist.hpp"
#include "sampling/token_constraints.hpp"

#include <optional>

namespace pyg {

// What the next token takes of a row of logits, from least to most.
enum class LogitsNeed {
    LARGEST,    // the first of the largest
    LIKELIEST,  // a shortlist, nearly always
    ALL,
};

// Samples a token from a row of logits: adds biases, restricts the candidates to the grammar and other constraints, and
// runs the sampler chain. Without any of them it is an argmax.
class TokenSampler {
  public:
    // `n_ctx` limits how far penalties look back. `stop_token_ids`, sorted, end the generation. PYG_ERR_GRAMMAR,
    // PYG_ERR_INVALID_PARAMETER
    TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options,
                 const std::vector<int32_t> & stop_token_ids);

    // Sample from a row of logits, which is unchanged on return. Any thread. PYG_ERR_GRAMMAR or
    // PYG_ERR_INVALID_PARAMETER when the options together rule out every token. `processed`, if not null, gets the
    // logprobs of the candidates that the token was chosen from, after all samplers, with `n_top` alternatives.
    int32_t sample(float * row, int32_t n_vocab, int32_t n_top = 0, Logprobs * processed = nullptr);

    // Sample from a shortlist of a row, its candidates in any order. Empty if that takes the whole row: then nothing
    // has changed but the shortlist.
    std::optional<int32_t> sample(Shortlist & shortlist);

    // Take a token that the caller chose instead of sampling one. PYG_ERR_GRAMMAR or PYG_ERR_INVALID_PARAMETER when the
    // options rule it out. `row`, with the logits that it was chosen from, and the rest are as for sample().
    int32_t take(int32_t token_id, const float * row, int32_t n_vocab, int32_t n_top = 0,
                 Logprobs * processed = nullptr);

    LogitsNeed need() const;

    bool has_grammar() const { return grammar_ != nullptr; }
    // The first tokens of a text that the grammar forces next, at most `n_max`.
    std::vector<int32_t> forced_tokens(size_t n_max) { return grammar_->forced_tokens(n_max); }

    // Feed the prompt to the penalties.
    void accept_prompt(const std::vector<int32_t> & prompt);

  private:
    bool is_constrained() const { return grammar_ && grammar_->is_active(); }
    template <class Body>
    auto                         guard_chain(Body && body);
    void                         accept(int32_t token_id);
    void                         accept_unsampled(int32_t token_id);
    std::optional<int32_t>       forced_token();
    bool                         is_possible(int32_t token_id);
    std::optional<int32_t>       choose(Shortlist & shortlist);
    bool                         lower(Shortlist & shortlist);
    const std::vector<int32_t> & forbidden();
    int32_t                      sample_greedy(const float * row, int32_t n_vocab, int32_t n_top, Logprobs * processed);
    int32_t                      sample_chain(const float * row, int32_t n_vocab, int32_t n_top, Logprobs * processed);
    bool                         apply_to_shortlist(const float * row, int32_t n_vocab, const Logprobs * processed,
                                                    llama_token_data_array & candidates);
    int32_t accept_selected(const llama_token_data_array & candidates, int32_t n_top, Logprobs * processed);
    void    collect(const float * row, int32_t n_vocab);

    [[noreturn]] void fail_no_token() const;

    UniqueSampler                      chain_;       // null: greedy without penalties
    Truncation                         truncation_;  // of the chain
    std::vector<llama_logit_bias>      biases_;
    TokenConstraints                   constraints_;
    std::unique_ptr<GrammarConstraint> grammar_;
    std::optional<ReasoningBudget>     reasoning_;  // empty: no limit
};

}  // namespace pyg
