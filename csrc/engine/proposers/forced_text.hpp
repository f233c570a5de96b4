// Forced text: where a grammar leaves a single continuation, guesses it in the vocabulary's own tokens.
//
// The grammar leaves several ways to spell such a text in tokens, so these guesses are checked like all others.
#pragma once

#include "engine/proposers/proposer.hpp"
#include "sampling/token_sampler.hpp"

#include <algorithm>

namespace pyg {

class ForcedText : public Proposer {
  public:
    // `sampler`: of the request, with a grammar; it must live as long.
    explicit ForcedText(TokenSampler & sampler) : sampler_(sampler) {}

    void propose(const std::vector<int32_t> & /*tokens*/, size_t n_max, Proposal & proposal) override {
        for (const int32_t token_id : sampler_.forced_tokens(n_max)) {
            proposal.push_back({token_id, static_cast<uint8_t>(std::min(proposal.size(), N_EVIDENCE - 1))});
        }
    }
    void       restart() override {}  // the grammar knows its own position
    ByEvidence prior() const override { return {0.8, 0.8, 0.8, 0.8}; }
    bool       is_costly() const override { return true; }

  private:
    TokenSampler & sampler_;
};

}  // namespace pyg
