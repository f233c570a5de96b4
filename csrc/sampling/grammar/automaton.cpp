#include "sampling/grammar/automaton.hpp"

#include "boundary/guard.hpp"

#include <algorithm>

namespace {

using pyg::fail;

constexpr size_t MAX_STACKS  = 20'000;
constexpr size_t MAX_WORK    = 5'000'000;  // stacks visited for one token or one mask: tenths of a second
constexpr size_t WORK_OF_NEW = 200;        // extra cost of a new state, in stacks

}  // namespace

namespace pyg {

GrammarAutomaton::GrammarAutomaton(const GrammarRules & rules, GrammarSteps & steps, const VocabTries & tries,
                                   const std::vector<int32_t> & spelled)
    : rules_(rules), steps_(steps), tries_(tries), spelled_(spelled),
      has_names_(std::any_of(rules.symbols.begin(), rules.symbols.end(),
                             [](const GrammarSymbol & s) {
                                 return s.kind == GrammarSymbol::TOKEN || s.kind == GrammarSymbol::NOT_TOKEN;
                             })),
      path_(tries.tokens().max_depth() + 1), mask_(tries.tokens().n_vocab()) {
    for (const int32_t token_id : spelled_) {
        longest_spelled_ = std::max(longest_spelled_, static_cast<uint32_t>(tries_.tokens().text(token_id).size()));
    }
    state_of(set_of({}), {});  // DEAD
    state_of(expanded_set(steps_.start()), {});
}

// --- stacks, sets and states, each stored once -------------------------------------------------------------
//
// New items are added to the lists first and to the indexes last: if an allocation fails in between, the item in the
// list is never found.

// Add the stacks that read a character, or the empty one, when rules and the like on top of `stack` are expanded.
void GrammarAutomaton::expand(StackId stack, std::vector<StackId> & all) {
    if (!steps_.expands(stack)) {
        spend(1);
        all.push_back(stack);
        return;
    }
    const auto known = expanded_.find(stack);
    uint32_t   set;
    if (known != expanded_.end()) {
        set = known->second;
    } else {
        std::vector<StackId> result;
        steps_.expand(stack, result);
        spend(result.size() + 1);
        set = set_of(std::move(result));
        expanded_.emplace(stack, set);
        n_bytes_ += 5 * sizeof(uint64_t);
    }
    const StackSets::Set stacks = sets_[set];
    spend(stacks.n);
    all.insert(all.end(), stacks.begin(), stacks.end());
}

uint32_t GrammarAutomaton::expanded_set(const std::vector<StackId> & stacks) {
    std::vector<StackId> all;
    all.reserve(stacks.size());
    for (const StackId stack : stacks) {
        expand(stack, all);
    }
    return set_of(std::move(all));
}

uint32_t GrammarAutomaton::set_of(std::vector<StackId> stacks) {
    std::sort(stacks.begin(), stacks.end());
    stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
    if (stacks.size() > MAX_STACKS) {
        throw fail(PYG_ERR_GRAMMAR, "the grammar can match in more than %zu ways at once", MAX_STACKS);
    }
    return sets_.id_of(stacks);
}

GrammarAutomaton::State GrammarAutomaton::state_of(uint32_t set, Utf8Prefix partial) {
    const bool is_whole = partial.missing == 0;
    if (is_whole && set >= whole_states_.size()) {
        whole_states_.resize(sets_.size(), NOT_KNOWN);
    }
    const uint64_t hash  = mixed_hash(mixed_hash(set, partial.missing), partial.value);
    const State    known = is_whole ? whole_states_[set] : partial_states_.find(hash, [&](State state) {
        const StateParts & parts = states_[state];
        return parts.set == set && parts.partial.missing == partial.missing && parts.partial.value == partial.value;
    });
    if (known != NOT_KNOWN) {
        return known;
    }
    spend(WORK_OF_NEW);
    const auto state = static_cast<State>(states_.size());
    if (!is_whole) {
        partial_states_.reserve_one();
    }
    states_.push_back({set, partial});
    n_bytes_ += sizeof(StateParts) + 2 * sizeof(uint64_t);
    if (is_whole) {
        whole_states_[set] = state;
    } else {
        partial_states_.add(hash, state);
    }
    return state;
}

// --- following ------------------------------------------------------------------------------------------------

GrammarAutomaton::State GrammarAutomaton::after_byte(State state, uint8_t byte) {
    if (!transitions_.has_row(state)) {
        add_row(state);
    }
    State * const next = transitions_.slot(state, byte);
    if (next == nullptr) {
        return DEAD;
    }
    if (*next == Transitions::UNKNOWN) {
        const StateParts parts = states_[state];
        *next                  = parts.partial.missing == 0 ? begin_character(parts.set, byte)
                                                            : continue_character(parts.set, parts.partial, byte);
    }
    return *next;
}

void GrammarAutomaton::add_row(State state) {
    const StateParts parts = states_[state];
    FirstBytes       bytes;
    if (parts.partial.missing != 0) {
        bytes.add_range(0x80, 0xBF);
    } else {
        for (const StackId stack : sets_[parts.set]) {
            if (stack != Stacks::EMPTY) {
                steps_.add_first_bytes(stack, bytes);
            }
        }
    }
    transitions_.add_row(state, bytes);
}

GrammarAutomaton::State GrammarAutomaton::begin_character(uint32_t set, uint8_t byte) {
    if (byte < 0x80) {
        return after_character(set, byte);
    }
    Utf8Prefix partial;
    return partial.read(byte) && may_become(set, partial) ? state_of(set, partial) : DEAD;
}

GrammarAutomaton::State GrammarAutomaton::continue_character(uint32_t set, Utf8Prefix partial, uint8_t byte) {
    if (!partial.read(byte)) {
        return DEAD;
    }
    if (partial.missing == 0) {
        return after_character(set, partial.value);
    }
    return may_become(set, partial) ? state_of(set, partial) : DEAD;
}

GrammarAutomaton::State GrammarAutomaton::after_character(uint32_t set, uint32_t code_point) {
    after_.clear();
    spend(sets_[set].n);
    for (const StackId stack : sets_[set]) {
        if (stack != Stacks::EMPTY) {
            steps_.step(stack, code_point, after_);
        }
    }
    return after_.empty() ? DEAD : state_of(expanded_set(after_), {});
}

bool GrammarAutomaton::may_become(uint32_t set, Utf8Prefix partial) {
    const auto [low, high]      = partial.range();
    const StackSets::Set stacks = sets_[set];
    return std::any_of(stacks.begin(), stacks.end(), [&, from = low, to = high](StackId stack) {
        return stack != Stacks::EMPTY && steps_.can_read(stack, from, to);
    });
}

// Limits the work of one step, because the engine's thread serves all requests.
void GrammarAutomaton::spend(size_t work) {
    spent_ += work;
    if (spent_ > MAX_WORK) {
        throw fail(
            PYG_ERR_GRAMMAR,
            "the grammar takes too long to follow because it can continue in too many ways: make it less ambiguous");
    }
}

GrammarAutomaton::State GrammarAutomaton::after_text(State state, const std::string & text) {
    spent_ = 0;
    for (size_t i = 0; i < text.size() && state != DEAD; i++) {
        state = after_byte(state, static_cast<uint8_t>(text[i]));
    }
    return state;
}

// A token that the grammar names matches by id, and also by its text if it can be spelled.
GrammarAutomaton::State GrammarAutomaton::after_token(State state, int32_t token_id) {
    spent_                   = 0;
    const State      spelled = is_spelled(token_id) ? after_text(state, tries_.tokens().text(token_id)) : DEAD;
    const StateParts parts   = states_[state];
    if (!has_names_ || parts.partial.missing != 0) {
        return spelled;
    }
    std::vector<StackId> named;
    for (const StackId stack : sets_[parts.set]) {
        const StackFrame frame = steps_.stacks().top(stack);
        if (stack == Stacks::EMPTY || frame.kind != FrameKind::SYMBOL) {
            continue;
        }
        const GrammarSymbol & symbol = steps_.symbol(frame);
        const bool            same   = symbol.value == static_cast<uint32_t>(token_id);
        if (symbol.kind == (same ? GrammarSymbol::TOKEN : GrammarSymbol::NOT_TOKEN)) {
            named.push_back(steps_.after_symbol(stack));
        }
    }
    if (named.empty()) {
        return spelled;
    }
    const StackSets::Set expanded = sets_[expanded_set(named)];
    std::vector<StackId> both(expanded.begin(), expanded.end());
    if (states_[spelled].partial.missing == 0) {
        const StackSets::Set other = sets_[states_[spelled].set];
        both.insert(both.end(), other.begin(), other.end());
    }
    return state_of(set_of(std::move(both)), {});
}

bool GrammarAutomaton::is_spelled(int32_t token_id) const {
    const std::string & text = tries_.tokens().text(token_id);
    return !text.empty() && text.find('\0') == std::string::npos &&
           (!tries_.tokens().is_special(token_id) || std::binary_search(spelled_.begin(), spelled_.end(), token_id));
}

bool GrammarAutomaton::is_complete(State state) const {
    const StateParts &   parts = states_[state];
    const StackSets::Set set   = sets_[parts.set];
    return parts.partial.missing == 0 && !set.empty() && *set.begin() == Stacks::EMPTY;
}

// --- what must follow ------------------------------------------------------------------------------------------

bool GrammarAutomaton::names_tokens(State state) {
    const StackSets::Set set = sets_[states_[state].set];
    return has_names_ && std::any_of(set.begin(), set.end(), [&](StackId stack) {
               const StackFrame & frame = steps_.stacks().top(stack);
               return stack != Stacks::EMPTY && frame.kind == FrameKind::SYMBOL &&
                      steps_.symbol(frame).kind != GrammarSymbol::CHARS;
           });
}

// The only byte that can follow, or -1.
int GrammarAutomaton::forced_byte(State state) {
    int found = -1;
    for (int byte = 0; byte < 256; byte++) {
        if (after_byte(state, static_cast<uint8_t>(byte)) == DEAD) {
            continue;
        }
        if (found >= 0) {
            return -1;
        }
        found = byte;
    }
    return found;
}

std::string GrammarAutomaton::forced_text(State state, size_t n_max) {
    spent_ = 0;
    std::string text;
    while (text.size() < n_max && !is_complete(state) && !names_tokens(state)) {
        const int byte = forced_byte(state);
        if (byte < 0) {
            break;
        }
        text += static_cast<char>(byte);
        state = after_byte(state, static_cast<uint8_t>(byte));
    }
    return text;
}

bool GrammarAutomaton::allows_longer(State state, const std::string & begun) {
    spent_                  = 0;
    const TokenTrie & trie  = tries_.tokens();
    uint32_t          after = 0;
    uint32_t          i     = trie.find(begun, after);
    path_[begun.size()]     = state;
    while (i < after) {
        const TokenTrie::Node & node = trie.nodes()[i];
        const State             next = after_byte(path_[node.depth], node.byte);
        if (next == DEAD) {
            i = node.after;
            continue;
        }
        path_[node.depth + 1u] = next;
        for (uint32_t entry = trie.nodes()[i - 1].tokens_after; entry < node.tokens_after; entry++) {
            const auto [token_id, special] = trie.entries()[entry];
            if (!special || std::binary_search(spelled_.begin(), spelled_.end(), token_id)) {
                return true;
            }
        }
        i++;
    }
    return false;
}

}  // namespace pyg
