#include "sampling/grammar/automaton.hpp"

#include "boundary/guard.hpp"

#include <algorithm>

namespace {

using pyg::fail;

constexpr uint32_t UNKNOWN     = UINT32_MAX;  // in the table: not computed yet
constexpr size_t   MAX_STACKS  = 20'000;
constexpr size_t   MAX_WORK    = 5'000'000;  // stacks visited for one token or one mask: tenths of a second
constexpr size_t   WORK_OF_NEW = 200;        // extra cost of a new state, in stacks

uint64_t pair_of(uint32_t a, uint32_t b) { return static_cast<uint64_t>(a) << 32 | b; }

}  // namespace

namespace pyg {

size_t GrammarAutomaton::SetHash::operator()(const StackSet & set) const {
    uint64_t hash = set.size();
    for (const StackId stack : set) {
        hash = (hash ^ stack) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
}

GrammarAutomaton::GrammarAutomaton(const GrammarRules & rules, GrammarSteps & steps, const VocabTries & tries,
                                   const std::vector<int32_t> & spelled)
    : rules_(rules), steps_(steps), tries_(tries), spelled_(spelled),
      has_names_(std::any_of(rules.symbols.begin(), rules.symbols.end(),
                             [](const GrammarSymbol & s) {
                                 return s.kind == GrammarSymbol::TOKEN || s.kind == GrammarSymbol::NOT_TOKEN;
                             })),
      path_(tries.tokens().max_depth() + 1) {
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

// The stacks that read a character, or the empty one, when rules and the like on top of `stack` are expanded.
const GrammarAutomaton::StackSet & GrammarAutomaton::expanded(StackId stack) {
    const auto known = expanded_.find(stack);
    if (known != expanded_.end()) {
        return known->second;
    }
    StackSet result;
    steps_.expand(stack, result);
    spend(result.size() + 1);
    n_bytes_ += result.size() * sizeof(StackId) + 8 * sizeof(uint64_t);
    return expanded_.emplace(stack, std::move(result)).first->second;
}

uint32_t GrammarAutomaton::expanded_set(const StackSet & stacks) {
    StackSet all;
    for (const StackId stack : stacks) {
        const StackSet & next = expanded(stack);
        spend(next.size());
        all.insert(all.end(), next.begin(), next.end());
    }
    return set_of(std::move(all));
}

uint32_t GrammarAutomaton::set_of(StackSet stacks) {
    std::sort(stacks.begin(), stacks.end());
    stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
    if (stacks.size() > MAX_STACKS) {
        throw fail(PYG_ERR_GRAMMAR, "the grammar can match in more than %zu ways at once", MAX_STACKS);
    }
    const auto known = set_ids_.find(stacks);
    if (known != set_ids_.end()) {
        return known->second;
    }
    n_bytes_ += 2 * stacks.size() * sizeof(StackId) + 16 * sizeof(uint64_t);
    sets_.push_back(stacks);
    return set_ids_.emplace(std::move(stacks), static_cast<uint32_t>(sets_.size() - 1)).first->second;
}

GrammarAutomaton::State GrammarAutomaton::state_of(uint32_t set, Utf8Prefix partial) {
    auto &     ids   = state_ids_[partial.missing];
    const auto known = ids.find(pair_of(set, partial.missing == 0 ? 0 : partial.value));
    if (known != ids.end()) {
        return known->second;
    }
    spend(WORK_OF_NEW);
    const auto state = static_cast<State>(states_.size());
    after_.resize(states_.size() + 1);
    states_.push_back({set, partial});
    n_bytes_ += sizeof(StateParts) + 8 * sizeof(uint64_t);
    return ids.emplace(pair_of(set, partial.missing == 0 ? 0 : partial.value), state).first->second;
}

// --- following ------------------------------------------------------------------------------------------------

GrammarAutomaton::State GrammarAutomaton::after_byte(State state, uint8_t byte) {
    if (state == DEAD) {
        return DEAD;
    }
    if (!after_[state]) {
        after_[state] = std::make_unique<std::array<State, 256>>();
        after_[state]->fill(UNKNOWN);
        n_bytes_ += sizeof(*after_[state]);
    }
    if ((*after_[state])[byte] == UNKNOWN) {
        const StateParts parts = states_[state];
        const State      next  = parts.partial.missing == 0 ? begin_character(parts.set, byte)
                                                            : continue_character(parts.set, parts.partial, byte);
        (*after_[state])[byte] = next;
    }
    return (*after_[state])[byte];
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
    const StackSet before = sets_[set];  // a copy: sets_ may reallocate
    StackSet       after;
    spend(before.size());
    for (const StackId stack : before) {
        if (stack != Stacks::EMPTY) {
            steps_.step(stack, code_point, after);
        }
    }
    return after.empty() ? DEAD : state_of(expanded_set(after), {});
}

bool GrammarAutomaton::may_become(uint32_t set, Utf8Prefix partial) {
    const auto [low, high]  = partial.range();
    const StackSet & stacks = sets_[set];
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
    StackSet named;
    for (const StackId stack : StackSet(sets_[parts.set])) {
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
    StackSet both = sets_[expanded_set(named)];
    if (states_[spelled].partial.missing == 0) {
        const StackSet & other = sets_[states_[spelled].set];
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
    const StateParts & parts = states_[state];
    const StackSet &   set   = sets_[parts.set];
    return parts.partial.missing == 0 && !set.empty() && set.front() == Stacks::EMPTY;
}

// --- what must follow ------------------------------------------------------------------------------------------

bool GrammarAutomaton::names_tokens(State state) {
    const StackSet & set = sets_[states_[state].set];
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
