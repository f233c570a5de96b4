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
    auto        known  = masks_.find(shared);
    if (known != masks_.end()) {
        return known->second;
    }
    auto mask = std::make_shared<TokenMask>(tries_.tokens().n_vocab());
    if (parts.partial.missing != 0) {
        add_spelled_tokens(state, *mask);
    } else {
        StackSet others;
        for (const StackId stack : StackSet(sets_[states_[shared].set])) {
            FreeText text;
            if (is_free_text(stack, text)) {
                add_free_text(text, *mask);
            } else {
                others.push_back(stack);
            }
        }
        if (others.size() == sets_[states_[shared].set].size()) {
            add_spelled_tokens(shared, *mask);
        } else {
            add_spelled_tokens(state_of(set_of(std::move(others)), {}), *mask);
            add_spelled_specials(shared, *mask);
        }
        add_named_tokens(states_[shared], *mask);
    }
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
    return tries_.texts(frame.kind == FrameKind::TEXT                   ? TextTrie::PLAIN
                        : rules_.terminals[frame.terminal].any_spelling ? TextTrie::JSON_STRING
                                                                        : TextTrie::TIDY_STRING);
}

StackId GrammarAutomaton::with_language(StackId stack, Language language, bool forget_text) {
    StackFrame frame                                        = steps_.stacks().top(stack);
    (frame.kind == FrameKind::FREE_KEY ? frame.b : frame.a) = language;
    frame.d = forget_text && frame.d != ReadTexts::UNTRACKED ? ReadTexts::OTHER : frame.d;
    return steps_.stacks().push(frame, steps_.stacks().below(stack));
}

uint32_t GrammarAutomaton::canonical_set(uint32_t set) {
    StackSet stacks  = sets_[set];
    bool     changed = false;
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

const TextMask & GrammarAutomaton::text_mask(const FreeText & text) {
    const StackFrame frame     = steps_.stacks().top(text.stack);
    Languages &      languages = steps_.languages(frame);
    const TextTrie & trie      = trie_of(frame);
    const Language   near      = languages.within(text.language, TextTrie::SHORT);
    const auto key = std::make_pair(static_cast<uint64_t>(frame.terminal) << 32 | near, frame.kind == FrameKind::TEXT);
    const auto known = text_masks_.find(key);
    if (known != text_masks_.end()) {
        return known->second;
    }
    TextMask mask = trie.short_mask(languages, near);
    n_bytes_ += mask.n_bytes();
    return text_masks_.emplace(key, std::move(mask)).first->second;
}

void GrammarAutomaton::add_free_text(const FreeText & text, TokenMask & mask) {
    const StackFrame frame     = steps_.stacks().top(text.stack);
    Languages &      languages = steps_.languages(frame);
    const TextTrie & trie      = trie_of(frame);
    const TextMask & near      = text_mask(text);
    TextMask         far(tries_.tokens().n_vocab());
    trie.add_long_tokens(languages, text.language, far);
    mask.add_all(near.inside);
    mask.add_all(far.inside);
    if (near.closers.empty() && far.closers.empty()) {
        return;
    }
    const std::vector<bool> & allowed = allowed_rests(trie, after_quote(text.stack));
    for (const TextMask * each : {&near, static_cast<const TextMask *>(&far)}) {
        for (const auto & [rest, token_id] : each->closers) {
            if (allowed[rest] && (!depends_on_text(frame, rest) || is_allowed_alone(text.stack, token_id))) {
                mask.add(token_id);
            }
        }
    }
}

// Items that must differ, and names that count: what a later string may be depends on this one's text.
bool GrammarAutomaton::depends_on_text(const StackFrame & frame, uint32_t rest) const {
    return frame.d != ReadTexts::UNTRACKED && frame.kind != FrameKind::TEXT &&
           trie_of(frame).rests()[rest].find('"') != std::string::npos;
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
    StackSet after;
    steps_.step(with_language(stack, Languages::EMPTY_TEXT, /*forget_text =*/true), '"', after);
    return state_of(expanded_set(after), {});
}

const std::vector<bool> & GrammarAutomaton::allowed_rests(const TextTrie & trie, State state) {
    const auto key   = std::make_pair(&trie, state);
    const auto known = allowed_rests_.find(key);
    if (known != allowed_rests_.end()) {
        return known->second;
    }
    std::vector<bool> allowed(trie.rests().size());
    for (size_t i = 0; i < allowed.size(); i++) {
        State next = state;
        for (const char byte : trie.rests()[i]) {
            next = after_byte(next, static_cast<uint8_t>(byte));
        }
        allowed[i] = next != DEAD;
    }
    n_bytes_ += allowed.size() / 8 + 8 * sizeof(uint64_t);
    return allowed_rests_.emplace(key, std::move(allowed)).first->second;
}

// --- everything else --------------------------------------------------------------------------------------------

void GrammarAutomaton::add_spelled_tokens(State state, TokenMask & mask) {
    const auto & nodes = tries_.tokens().nodes();
    path_[0]           = state;
    for (uint32_t i = 0; i < nodes.size() && state != DEAD;) {
        const TokenTrie::Node & node = nodes[i];
        const State             next = after_byte(path_[node.depth], node.byte);
        if (next == DEAD) {
            i = node.after;
            continue;
        }
        path_[node.depth + 1u] = next;
        for (uint32_t entry = i == 0 ? 0 : nodes[i - 1].tokens_after; entry < node.tokens_after; entry++) {
            const auto [token_id, special] = tries_.tokens().entries()[entry];
            if (!special || std::binary_search(spelled_.begin(), spelled_.end(), token_id)) {
                mask.add(token_id);
            }
        }
        i++;
    }
}

// Special tokens whose text the grammar mentions; free text leaves them out.
void GrammarAutomaton::add_spelled_specials(State state, TokenMask & mask) {
    for (const int32_t token_id : spelled_) {
        if (!mask.has(token_id) && after_text(state, tries_.tokens().text(token_id)) != DEAD) {
            mask.add(token_id);
        }
    }
}

void GrammarAutomaton::add_named_tokens(const StateParts & parts, TokenMask & mask) {
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
            mask.add(static_cast<int32_t>(symbol.value));
        } else if (symbol.kind == GrammarSymbol::NOT_TOKEN) {
            barred.insert(symbol.value);
        }
    }
    // Two that bar different tokens together allow every token.
    for (int32_t token_id = 0; !barred.empty() && token_id < n_vocab; token_id++) {
        if (barred.size() > 1 || barred.count(static_cast<uint32_t>(token_id)) == 0) {
            mask.add(token_id);
        }
    }
}

}  // namespace pyg
