// Guessed tokens of one request: chooses how many of which proposer are worth their columns in the next step, and
// learns from what is sampled.
//
// A guess costs a column of the step, whose price ColumnCosts knows, and earns a token if it and those before it are
// right. How often that is so is measured for each level of evidence of each proposer; also while no guess is computed,
// because a proposal can be compared with the tokens that are sampled anyway. So nothing has to be tried at a loss, and
// where guesses are wrong, only the look-ups cost time.
//
// The guesses of a draft model cost its forward passes as well, which several requests share. So it is asked only if
// that promises to pay, or as a trial that the time saved or spent so far can afford.
#pragma once

#include "engine/proposers/proposer.hpp"
#include "engine/speculation/column_costs.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace pyg {

// One thread at a time. What it chooses may depend on timings: the tokens of a request don't depend on its guesses.
class Speculator {
  public:
    // What a step costs and earns without the guesses that are still to be chosen. Costs are multiples of the duration
    // of a single column.
    struct Load {
        uint32_t n_columns;  // of tokens to decode, and of guesses
        double   n_tokens;   // expected
        double   rate = 0;   // tokens of a step by its cost, the draft model's share included, lately
    };

    // Costs of asking a draft model.
    struct DraftCosts {
        double pass;        // of a token
        double catch_up;    // of the tokens that it has not read
        double affordable;  // for a trial
        size_t n_left;      // tokens that the request may still generate
        size_t n_alike;     // requests that will decide alike: their guesses need columns as well
    };

    // `n_fixed`: guesses of every step, whether they pay or not; 0: as many as pay.
    explicit Speculator(size_t n_fixed = 0) : n_fixed_(n_fixed) {}

    // Proposers that are added first are preferred.
    void add(ProposerKind kind, std::unique_ptr<Proposer> proposer);

    // Ask the proposers for at most `n_max` guesses for what follows `tokens`; all but a draft model.
    void propose(const std::vector<int32_t> & tokens, size_t n_max);

    // Guesses to ask of the draft model.
    struct Ask {
        size_t n_max    = 0;      // 0: it is not worth asking
        bool   is_trial = false;  // does not promise to pay
    };
    Ask ask_of_draft(size_t n_max, const ColumnCosts & costs, const Load & load, const DraftCosts & draft);
    // Return true if the draft model should guess another token after these, for the cost of `pass`: if it promises
    // more tokens than other uses of the time.
    bool drafts_more(const Proposal & drafted, const ColumnCosts & costs, const Load & load, double pass) const;
    // Probability that all of these guesses are right.
    double chance_of(const Proposal & drafted) const;
    // Add what it guessed to the proposals.
    void set_drafted(Proposal drafted);

    // Choose at most `n_max` guesses of the proposals, and add them to the load.
    void choose(size_t n_max, const ColumnCosts & costs, Load & load, std::vector<int32_t> & guesses);

    // Tokens were dropped: the context has shifted.
    void restart();

    // Learn from the tokens that were sampled since.
    void learn(const int32_t * sampled, size_t n);

    // Proposer of the guesses that were chosen last.
    ProposerKind kind() const { return sources_[chosen_].kind; }

  private:
    struct Source {
        ProposerKind              kind;
        std::unique_ptr<Proposer> proposer;
        ByEvidence                probability;  // that a guess is right if those before it are
        Proposal                  proposal;     // for the next step
        uint32_t                  pause   = 0;  // steps without a proposal after a wrong one
        uint32_t                  n_skips = 0;  // of these, still to come
        double                    chance  = 0;  // that a guess is right, of any evidence
    };
    struct Choice {
        size_t n_guesses  = 0;
        double n_expected = 0;  // of them, right
        double value      = 0;
    };

    Source *       drafting() { return const_cast<Source *>(std::as_const(*this).drafting()); }
    const Source * drafting() const;
    Choice         fixed(const Source & source, size_t n_max) const;
    Choice         worthwhile(const Source & source, size_t n_max, const ColumnCosts & costs, const Load & load) const;
    void           learn(Source & source, const int32_t * sampled, size_t n) const;

    const size_t        n_fixed_;
    std::vector<Source> sources_;
    size_t              chosen_      = 0;
    uint64_t            n_generated_ = 0;
};

}  // namespace pyg
