#include "engine/proposers/prompt_lookup.hpp"

namespace {

// The more tokens occurred before, the likelier is the next one.
uint8_t evidence_of(size_t n_common) {
    return static_cast<uint8_t>((n_common >= 4) + (n_common >= 8) + (n_common >= 16));
}

}  // namespace

namespace pyg {

void PromptLookup::propose(const std::vector<int32_t> & tokens, size_t n_max, Proposal & proposal) {
    index_.extend(tokens);
    const NgramIndex::Match match = index_.find(tokens);
    for (size_t i = 0; match.next > 0 && i < n_max; i++) {
        const size_t at = match.next + i;  // the occurrence may reach the end: then the guesses repeat themselves
        proposal.push_back(
            {at < tokens.size() ? tokens[at] : proposal[at - tokens.size()].token_id, evidence_of(match.length + i)});
    }
}

}  // namespace pyg
