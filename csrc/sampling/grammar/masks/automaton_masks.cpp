// Token masks of the automaton's states. Stacks inside of free text (strings, names, regular expressions) take the
// masks of their languages, which many states share; the others follow the vocabulary's trie.
#include "sampling/grammar/automaton.hpp"
#include "sampling/grammar/masks/token_mask.hpp"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

namespace pyg {

std::shared_ptr<const TokenMask> GrammarAutomaton::mask(State state) {
    spent_                 = 0;
    const StateParts parts = states_[state];
    // States that differ in far limits only have one mask.
    const State shared = parts.partial.missing == 0 ? state_of(canonical_set(parts.set), {}) : state;
    const auto  known  = masks_.find(shared);
    if (known != masks_.end()) {
        return known->second;
    }
    mask_.clear();
    if (parts.partial.missing != 0) {
        add_spelled_tokens(state);
    } else {
        const StackSets::Set stacks = sets_[states_[shared].set];
        std::vector<StackId> others;
        for (const StackId stack : stacks) {
            FreeText text;
            if (is_free_text(stack, text)) {
                add_free_text(text);
            } else {
                others.push_back(stack);
            }
        }
        if (others.size() == stacks.n) {
            add_spelled_tokens(shared);
        } else {
            add_spelled_tokens(state_of(set_of(std::move(others)), {}));
            add_spelled_specials(shared);
        }
        add_named_tokens(states_[shared]);
    }
    auto mask = std::make_shared<const TokenMask>(mask_.finish());
    n_bytes_ += mask->n_bytes() + 8 * sizeof(uint64_t);
    return masks_.emplace(shared, std::move(mask)).first->second;
}

// --- free text --------------------------------------------------------------------------------------------------

bool GrammarAutomaton::is_free_text(StackId stack, FreeText & text) {
    if (stack == Stacks::EMPTY) {
        return false;
    }
    const StackFrame & frame = steps_.stacks().top(stack);
    text                     = {stack, frame.kind == FrameKind::FREE_KEY ? frame.b : frame.a};
    switch (frame.kind) {
    case FrameKind::STRING:
        return frame.b == 0;
    case FrameKind::FREE_KEY:
        return frame.c == 0;
    case FrameKind::TEXT:
        return rules_.terminals[frame.terminal].is_text && steps_.stacks().below(stack) == Stacks::EMPTY;
    default:
        return false;
    }
}

const TextTrie & GrammarAutomaton::trie_of(const StackFrame & frame) const {
    return tries_.texts(spelling_of(rules_.terminals[frame.terminal]));
}

StackId GrammarAutomaton::with_language(StackId stack, Language language, bool forget_text) {
    StackFrame frame                                        = steps_.stacks().top(stack);
    (frame.kind == FrameKind::FREE_KEY ? frame.b : frame.a) = language;
    frame.d = forget_text && frame.d != ReadTexts::UNTRACKED ? ReadTexts::OTHER : frame.d;
    return steps_.stacks().push(frame, steps_.stacks().below(stack));
}

uint32_t GrammarAutomaton::canonical_set(uint32_t set) {
    if (set >= canonical_sets_.size()) {
        canonical_sets_.resize(sets_.size(), NOT_KNOWN);
    }
    if (canonical_sets_[set] == NOT_KNOWN) {
        const uint32_t canonical = compute_canonical_set(set);
        canonical_sets_[set]     = canonical;
    }
    return canonical_sets_[set];
}

uint32_t GrammarAutomaton::compute_canonical_set(uint32_t set) {
    std::vector<StackId> stacks(sets_[set].begin(), sets_[set].end());
    bool                 changed = false;
    for (StackId & stack : stacks) {
        FreeText text;
        if (is_free_text(stack, text)) {
            const StackFrame frame = steps_.stacks().top(stack);
            const Language   near =
                steps_.languages(frame).within(text.language, std::max(trie_of(frame).longest(), longest_spelled_));
            const StackId same = with_language(stack, near, /*forget_text =*/false);
            changed            = changed || same != stack;
            stack              = same;
        }
    }
    return changed ? set_of(std::move(stacks)) : set;
}

const TextMask & GrammarAutomaton::short_mask(const FreeText & text) {
    const StackFrame frame     = steps_.stacks().top(text.stack);
    Languages &      languages = steps_.languages(frame);
    const TextTrie & trie      = trie_of(frame);
    const Language   near      = languages.within(text.language, TextTrie::SHORT);
    const auto key = std::make_pair(static_cast<uint64_t>(frame.terminal) << 32 | near, frame.kind == FrameKind::TEXT);
    const auto known = short_masks_.find(key);
    if (known != short_masks_.end()) {
        return known->second;
    }
    TextMask mask = trie.short_mask(languages, near);
    n_bytes_ += mask.n_bytes();
    return short_masks_.emplace(key, std::move(mask)).first->second;
}

const TextMask & GrammarAutomaton::long_mask(const FreeText & text) {
    const StackFrame frame = steps_.stacks().top(text.stack);
    const auto       key =
        std::make_pair(static_cast<uint64_t>(frame.terminal) << 32 | text.language, frame.kind == FrameKind::TEXT);
    const auto known = long_masks_.find(key);
    if (known != long_masks_.end()) {
        return known->second;
    }
    TextMask mask = trie_of(frame).long_mask(steps_.languages(frame), text.language);
    n_bytes_ += mask.n_bytes();
    return long_masks_.emplace(key, std::move(mask)).first->second;
}

void GrammarAutomaton::add_free_text(const FreeText & text) {
    if (text.language == Languages::ANYTHING) {
        const TextMask & any = trie_of(steps_.stacks().top(text.stack)).any_text();
        mask_.add_all(any.inside);
        add_closers(text, any);
        return;
    }
    for (const TextMask * part : {&short_mask(text), &long_mask(text)}) {
        mask_.add_all(part->inside);
        add_closers(text, *part);
    }
}

void GrammarAutomaton::add_closers(const FreeText & text, const TextMask & mask) {
    if (mask.closers->empty()) {
        return;
    }
    const StackFrame frame = steps_.stacks().top(text.stack);
    for (const uint32_t rest : allowed_rests(trie_of(frame), after_quote(text.stack))) {
        const bool depends = depends_on_text(frame, rest);
        const auto first   = std::lower_bound(mask.closers->begin(), mask.closers->end(), std::make_pair(rest, 0));
        for (auto closer = first; closer != mask.closers->end() && closer->first == rest; ++closer) {
            if (!depends || is_allowed_alone(text.stack, closer->second)) {
                mask_.add(closer->second);
            }
        }
    }
}

// Items that must differ, and names that count: what a later string may be depends on this one's text.
bool GrammarAutomaton::depends_on_text(const StackFrame & frame, uint32_t rest) const {
    return frame.d != ReadTexts::UNTRACKED && frame.kind != FrameKind::TEXT && trie_of(frame).has_quote(rest);
}

bool GrammarAutomaton::is_allowed_alone(StackId stack, int32_t token_id) {
    State state = state_of(set_of({stack}), {});
    for (const char byte : tries_.tokens().text(token_id)) {
        state = after_byte(state, static_cast<uint8_t>(byte));
    }
    return state != DEAD;
}

// The state after the closing quote of a text that was not read before: with another text, at most as much is allowed.
GrammarAutomaton::State GrammarAutomaton::after_quote(StackId stack) {
    std::vector<StackId> after;
    steps_.step(with_language(stack, Languages::EMPTY_TEXT, /*forget_text =*/true), '"', after);
    return state_of(expanded_set(after), {});
}

// Ascending numbers of the rests that the state allows.
const std::vector<uint32_t> & GrammarAutomaton::allowed_rests(const TextTrie & trie, State state) {
    const auto key   = std::make_pair(&trie, state);
    const auto known = allowed_rests_.find(key);
    if (known != allowed_rests_.end()) {
        return known->second;
    }
    std::vector<uint32_t> allowed;
    const auto &          nodes = trie.rest_nodes();
    if (state != DEAD) {
        allowed.push_back(TextTrie::EMPTY_REST);
    }
    path_[0] = state;
    for (uint32_t i = 0; i < nodes.size() && state != DEAD;) {
        const State next = after_byte(path_[nodes[i].depth], nodes[i].byte);
        if (next == DEAD) {
            i = nodes[i].after;
            continue;
        }
        path_[nodes[i].depth + 1u] = next;
        if (nodes[i].rest != TextTrie::NO_REST) {
            allowed.push_back(nodes[i].rest);
        }
        i++;
    }
    std::sort(allowed.begin(), allowed.end());
    n_bytes_ += allowed.size() * sizeof(uint32_t) + 10 * sizeof(uint64_t);
    return allowed_rests_.emplace(key, std::move(allowed)).first->second;
}

// --- everything else --------------------------------------------------------------------------------------------

void GrammarAutomaton::add_spelled_tokens(State state) {
    const auto & nodes   = tries_.tokens().nodes();
    const auto & entries = tries_.tokens().entries();
    path_[0]             = state;
    for (uint32_t i = 0; i < nodes.size() && state != DEAD;) {
        const TokenTrie::Node & node = nodes[i];
        const State             next = after_byte(path_[node.depth], node.byte);
        if (next == DEAD) {
            i = node.after;
            continue;
        }
        path_[node.depth + 1u] = next;
        for (uint32_t entry = i == 0 ? 0 : nodes[i - 1].tokens_after; entry < node.tokens_after; entry++) {
            const auto [token_id, special] = entries[entry];
            if (!special || std::binary_search(spelled_.begin(), spelled_.end(), token_id)) {
                mask_.add(token_id);
            }
        }
        i++;
    }
}

// Special tokens whose text the grammar mentions; free text leaves them out.
void GrammarAutomaton::add_spelled_specials(State state) {
    for (const int32_t token_id : spelled_) {
        if (!mask_.has(token_id) && after_text(state, tries_.tokens().text(token_id)) != DEAD) {
            mask_.add(token_id);
        }
    }
}

void GrammarAutomaton::add_named_tokens(const StateParts & parts) {
    if (!has_names_ || parts.partial.missing != 0) {
        return;
    }
    const int32_t                n_vocab = tries_.tokens().n_vocab();
    std::unordered_set<uint32_t> barred;  // by stacks that match any token but one
    for (const StackId stack : sets_[parts.set]) {
        if (stack == Stacks::EMPTY || steps_.stacks().top(stack).kind != FrameKind::SYMBOL) {
            continue;
        }
        const GrammarSymbol & symbol = steps_.symbol(steps_.stacks().top(stack));
        if (symbol.kind == GrammarSymbol::TOKEN && symbol.value < static_cast<uint32_t>(n_vocab)) {
            mask_.add(static_cast<int32_t>(symbol.value));
        } else if (symbol.kind == GrammarSymbol::NOT_TOKEN) {
            barred.insert(symbol.value);
        }
    }
    // Two that bar different tokens together allow every token.
    for (int32_t token_id = 0; !barred.empty() && token_id < n_vocab; token_id++) {
        if (barred.size() > 1 || barred.count(static_cast<uint32_t>(token_id)) == 0) {
            mask_.add(token_id);
        }
    }
}

}  // namespace pyg
