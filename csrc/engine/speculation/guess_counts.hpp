// Counts of guessed tokens by their proposer.
#pragma once

#include "engine/proposers/proposer.hpp"
#include "pyggml.h"

namespace pyg {

inline void count(pyg_guess_counts & counts, ProposerKind kind, uint32_t n_drafted, uint32_t n_accepted) {
    switch (kind) {
    case FORCED_TEXT:
        counts.n_drafted_forced += n_drafted;
        counts.n_accepted_forced += n_accepted;
        break;
    case PROMPT_LOOKUP:
        counts.n_drafted_lookup += n_drafted;
        counts.n_accepted_lookup += n_accepted;
        break;
    case DRAFT_MODEL:
        counts.n_drafted_model += n_drafted;
        counts.n_accepted_model += n_accepted;
        break;
    }
}

}  // namespace pyg
