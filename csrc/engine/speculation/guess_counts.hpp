// Counts of guessed tokens by their proposer.
#pragma once

#include "engine/proposers/proposer.hpp"
#include "pyggml.h"

namespace pyg {

inline void count(pyg_guess_counts & counts, ProposerKind kind, uint32_t n_drafted, uint32_t n_accepted) {
    (kind == FORCED_TEXT ? counts.n_drafted_forced : counts.n_drafted_lookup) += n_drafted;
    (kind == FORCED_TEXT ? counts.n_accepted_forced : counts.n_accepted_lookup) += n_accepted;
}

}  // namespace pyg
