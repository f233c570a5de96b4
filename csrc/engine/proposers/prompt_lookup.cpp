#include "engine/proposers/prompt_lookup.hpp"

namespace pyg {

void PromptLookup::propose(const std::vector<int32_t> & tokens, size_t n_max, Proposal & proposal) {
    index_.extend(tokens);
    const NgramIndex::Match match = index_.find(tokens);
    for (size_t i = 0; match.next > 0 && i < n_max; i++) {
        const size_t at = match.next + i;  // the occurrence may reach the end: then the guesses repeat themselves
        proposal.push_back({at < tokens.size() ? tokens[at] : proposal[at - tokens.size()].token_id,
                            lookup_evidence(match.length + i)});
    }
}

}  // namespace pyg
