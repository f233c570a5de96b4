// Token masks of the automaton's states.
#include "sampling/grammar/token_mask.hpp"

#include "sampling/grammar/automaton.hpp"

#include <memory>
#include <unordered_set>
#include <utility>

namespace pyg {

std::shared_ptr<const TokenMask> GrammarAutomaton::mask(State state) {
    if (!masks_[state]) {
        spent_    = 0;
        auto mask = std::make_shared<TokenMask>(trie_.n_vocab());
        add_spelled_tokens(state, *mask);
        add_named_tokens(states_[state], *mask);
        n_bytes_ += mask->n_bytes();
        masks_[state] = std::move(mask);
    }
    return masks_[state];
}

void GrammarAutomaton::add_spelled_tokens(State state, TokenMask & mask) {
    const auto & nodes = trie_.nodes();
    path_[0]           = state;
    for (uint32_t i = 0; i < nodes.size();) {
        const TokenTrie::Node & node = nodes[i];
        const State             next = after_byte(path_[node.depth], node.byte);
        if (next == DEAD) {
            i = node.after;
            continue;
        }
        path_[node.depth + 1u] = next;
        for (uint32_t entry = i == 0 ? 0 : nodes[i - 1].tokens_after; entry < node.tokens_after; entry++) {
            const auto [token_id, special] = trie_.entries()[entry];
            if (!special || spelled_[static_cast<size_t>(token_id)]) {
                mask.add(token_id);
            }
        }
        i++;
    }
}

void GrammarAutomaton::add_named_tokens(const StateParts & parts, TokenMask & mask) const {
    if (!has_names_ || parts.partial.missing != 0) {
        return;
    }
    std::unordered_set<uint32_t> barred;  // by stacks that match any token but one
    for (const uint32_t top : sets_[parts.set]) {
        if (top == 0) {
            continue;
        }
        if (symbol(top).kind == GrammarSymbol::TOKEN && symbol(top).value < static_cast<uint32_t>(trie_.n_vocab())) {
            mask.add(static_cast<int32_t>(symbol(top).value));
        } else if (symbol(top).kind == GrammarSymbol::NOT_TOKEN) {
            barred.insert(symbol(top).value);
        }
    }
    // Two that bar different tokens together allow every token.
    for (int32_t token_id = 0; !barred.empty() && token_id < trie_.n_vocab(); token_id++) {
        if (barred.size() > 1 || barred.count(static_cast<uint32_t>(token_id)) == 0) {
            mask.add(token_id);
        }
    }
}

}  // namespace pyg
