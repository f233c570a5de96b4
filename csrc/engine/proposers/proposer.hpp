// Proposers of guessed tokens.
//
// A request may have guesses computed together with its last token. Each is checked: it is kept only if the sampler
// chooses it (engine/speculation.cpp). So a wrong guess costs time, and nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace pyg {

// Most guesses of a request in a step. With its last token they fill two tiles of eight columns (docs/kernels.md).
constexpr size_t MAX_GUESSES = 15;

// Kinds of proposers, in the order in which they are asked.
enum ProposerKind : uint8_t { FORCED_TEXT, PROMPT_LOOKUP, DRAFT_MODEL };

// Levels of evidence for a guess, from the least to the most. How often guesses of a level are right is measured.
constexpr size_t N_EVIDENCE = 4;
using ByEvidence            = std::array<double, N_EVIDENCE>;

struct Guess {
    int32_t token_id;
    uint8_t evidence;  // less than N_EVIDENCE
};

// The tokens that a request is expected to continue with.
using Proposal = std::vector<Guess>;

// Proposer of one request. One thread at a time.
class Proposer {
  public:
    virtual ~Proposer() = default;

    // Append at most `n_max` guesses to `proposal`, which is empty. `tokens`: the prompt and what was generated; they
    // have only grown since the last call, or since restart().
    virtual void propose(const std::vector<int32_t> & tokens, size_t n_max, Proposal & proposal) = 0;

    // Tokens were dropped: the context has shifted.
    virtual void restart() = 0;

    // Probability to assume that a guess is right if those before it are, until it has been measured.
    virtual ByEvidence prior() const = 0;

    // The same for a guess of any evidence.
    virtual double prior_chance() const {
        const ByEvidence all = prior();
        return std::accumulate(all.begin(), all.end(), 0.0) / N_EVIDENCE;
    }

    // True if proposing takes so long that it should be done seldom while guesses are mostly wrong.
    virtual bool is_costly() const = 0;

    // Tokens were sampled, guessed or not.
    virtual void sampled(const int32_t * /*token_ids*/, size_t /*n*/) {}

    // A guess, after right ones, was compared with what was sampled.
    virtual void learn(uint8_t /*evidence*/, bool /*is_right*/) {}
};

}  // namespace pyg
