#include "sampling/grammar/automaton.hpp"

#include "boundary/guard.hpp"

#include <algorithm>
#include <unordered_set>

namespace {

using pyg::fail;

constexpr uint32_t NOTHING      = UINT32_MAX;  // symbol of the empty stack
constexpr uint32_t UNKNOWN      = UINT32_MAX;  // in the table: not computed yet
constexpr size_t   MAX_STACKS   = 20'000;
constexpr size_t   MAX_WORK     = 5'000'000;  // stacks visited for one token or one mask: tenths of a second
constexpr size_t   WORK_OF_NEW  = 200;        // extra cost of a new state, in stacks
constexpr size_t   N_BYTES      = 256;
constexpr uint32_t SURROGATES[] = {0xD800, 0xDFFF};

struct CodePoints {
    uint32_t low;
    uint32_t high;

    bool       none() const { return low > high; }
    CodePoints cut(const CodePoints & other) const { return {std::max(low, other.low), std::min(high, other.high)}; }
};

// Code points that these bits can become with that many more bytes of valid UTF-8: no overlong forms, no surrogates,
// nothing above the last code point.
CodePoints possible(uint32_t value, uint32_t missing) {
    const uint32_t shift = 6 * missing;
    CodePoints     range = {value << shift, ((value + 1) << shift) - 1};
    const uint32_t least = value != 0 ? 0 : missing == 3 ? 0x10000 : 0x800;
    range                = range.cut({least, 0x10FFFF});
    if (range.low >= SURROGATES[0] && range.low <= SURROGATES[1]) {
        range.low = SURROGATES[1] + 1;
    }
    if (range.high >= SURROGATES[0] && range.high <= SURROGATES[1]) {
        range.high = SURROGATES[0] - 1;
    }
    return range;
}

uint64_t pair_of(uint32_t a, uint32_t b) { return static_cast<uint64_t>(a) << 32 | b; }

}  // namespace

namespace pyg {

size_t GrammarAutomaton::SetHash::operator()(const StackSet & set) const {
    uint64_t hash = set.size();
    for (const uint32_t stack : set) {
        hash = (hash ^ stack) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
}

GrammarAutomaton::GrammarAutomaton(const GrammarRules & rules, const TokenTrie & trie,
                                   const std::vector<bool> & spelled)
    : rules_(rules), trie_(trie), spelled_(spelled),
      has_names_(std::any_of(rules.symbols.begin(), rules.symbols.end(),
                             [](const GrammarSymbol & s) {
                                 return s.kind == GrammarSymbol::TOKEN || s.kind == GrammarSymbol::NOT_TOKEN;
                             })),
      stacks_{{NOTHING, 0}}, path_(trie.max_depth() + 1) {
    state_of(set_of({}), {0, 0});  // DEAD
    StackSet first;
    for (const uint32_t start : rules.alternatives[rules.root]) {
        const StackSet & begun = expanded(rules.ends(start) ? 0 : stack(start, 0));
        first.insert(first.end(), begun.begin(), begun.end());
    }
    state_of(set_of(std::move(first)), {0, 0});
}

// --- stacks, sets and states, each stored once -------------------------------------------------------------
//
// New items are added to the lists first and to the indexes last: if an allocation fails in between, the item in the
// list is never found.

uint32_t GrammarAutomaton::stack(uint32_t symbol, uint32_t below) {
    const auto known = stack_ids_.find(pair_of(symbol, below));
    if (known != stack_ids_.end()) {
        return known->second;
    }
    stacks_.push_back({symbol, below});
    n_bytes_ += sizeof(Stack) + 4 * sizeof(uint64_t);
    return stack_ids_.emplace(pair_of(symbol, below), static_cast<uint32_t>(stacks_.size() - 1)).first->second;
}

// Expand the rules on top of `start` into all stacks with a character set or a token on top, or empty.
const GrammarAutomaton::StackSet & GrammarAutomaton::expanded(uint32_t start) {
    const auto known = expanded_.find(start);
    if (known != expanded_.end()) {
        return known->second;
    }
    StackSet                     result;
    std::vector<uint32_t>        found = {start};
    std::unordered_set<uint32_t> seen  = {start};
    for (size_t i = 0; i < found.size(); i++) {
        const uint32_t top = found[i];
        if (top == 0 || symbol(top).kind != GrammarSymbol::RULE) {
            result.push_back(top);
            continue;
        }
        const uint32_t rule = symbol(top).value;
        const uint32_t rest = advanced_stack(top);
        for (const uint32_t first : rules_.alternatives[rule]) {
            const uint32_t next = rules_.ends(first) ? rest : stack(first, rest);
            if (seen.insert(next).second) {
                found.push_back(next);
            }
        }
        if (found.size() > MAX_STACKS) {
            throw fail(PYG_ERR_GRAMMAR, "the grammar can continue in more than %zu ways at once", MAX_STACKS);
        }
    }
    spend(found.size());
    n_bytes_ += result.size() * sizeof(uint32_t) + 8 * sizeof(uint64_t);
    return expanded_.emplace(start, std::move(result)).first->second;
}

// The stack after the symbol on top has matched.
uint32_t GrammarAutomaton::advanced_stack(uint32_t top) {
    const Stack at = stacks_[top];
    return rules_.ends(at.symbol + 1) ? at.below : stack(at.symbol + 1, at.below);
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
    n_bytes_ += 2 * stacks.size() * sizeof(uint32_t) + 16 * sizeof(uint64_t);
    sets_.push_back(stacks);
    return set_ids_.emplace(std::move(stacks), static_cast<uint32_t>(sets_.size() - 1)).first->second;
}

GrammarAutomaton::State GrammarAutomaton::state_of(uint32_t set, Partial partial) {
    auto &     ids   = state_ids_[partial.missing];
    const auto known = ids.find(pair_of(set, partial.value));
    if (known != ids.end()) {
        return known->second;
    }
    spend(WORK_OF_NEW);
    const auto   state    = static_cast<State>(states_.size());
    const size_t n_states = size_t{state} + 1;
    after_.resize(n_states * N_BYTES, state == DEAD ? DEAD : UNKNOWN);
    masks_.resize(n_states);
    states_.push_back({set, partial});
    n_bytes_ += sizeof(StateParts) + N_BYTES * sizeof(State) + 8 * sizeof(uint64_t);
    return ids.emplace(pair_of(set, partial.value), state).first->second;
}

// --- following ------------------------------------------------------------------------------------------------

template <class Matches>
uint32_t GrammarAutomaton::set_after(uint32_t set, Matches && matches) {
    const StackSet before = sets_[set];  // a copy: sets_ may reallocate
    StackSet       after;
    spend(before.size());
    for (const uint32_t top : before) {
        if (top != 0 && matches(symbol(top))) {
            const StackSet & next = expanded(advanced_stack(top));
            spend(next.size());
            after.insert(after.end(), next.begin(), next.end());
        }
    }
    return set_of(std::move(after));
}

GrammarAutomaton::State GrammarAutomaton::after_byte(State state, uint8_t byte) {
    const size_t at = state * N_BYTES + byte;
    if (after_[at] == UNKNOWN) {
        const StateParts parts = states_[state];
        const State      next  = parts.partial.missing == 0 ? begin_character(parts.set, byte)
                                                            : continue_character(parts.set, parts.partial, byte);
        after_[at]             = next;
    }
    return after_[at];
}

GrammarAutomaton::State GrammarAutomaton::begin_character(uint32_t set, uint8_t byte) {
    if (byte < 0x80) {
        return after_character(set, byte);
    }
    const Partial partial = byte >= 0xF0   ? Partial{byte & 0x07u, 3}
                            : byte >= 0xE0 ? Partial{byte & 0x0Fu, 2}
                                           : Partial{byte & 0x1Fu, 1};
    const bool    is_lead = byte >= 0xC2 && byte <= 0xF4;
    return is_lead && may_become(set, partial) ? state_of(set, partial) : DEAD;
}

GrammarAutomaton::State GrammarAutomaton::continue_character(uint32_t set, Partial partial, uint8_t byte) {
    const uint32_t   missing = partial.missing - 1;
    const uint32_t   value   = partial.value << 6 | (byte & 0x3Fu);
    const uint32_t   shift   = 6 * missing;
    const CodePoints next    = {value << shift, ((value + 1) << shift) - 1};
    if (byte >> 6 != 2 || next.cut(possible(partial.value, partial.missing)).none()) {
        return DEAD;
    }
    if (missing == 0) {
        return after_character(set, value);
    }
    return may_become(set, {value, missing}) ? state_of(set, {value, missing}) : DEAD;
}

GrammarAutomaton::State GrammarAutomaton::after_character(uint32_t set, uint32_t code_point) {
    return state_of(set_after(set,
                              [&](const GrammarSymbol & symbol) {
                                  return symbol.kind == GrammarSymbol::CHARS &&
                                         rules_.char_sets[symbol.value].contains(code_point);
                              }),
                    {0, 0});
}

bool GrammarAutomaton::may_become(uint32_t set, Partial partial) const {
    const CodePoints range = possible(partial.value, partial.missing);
    return std::any_of(sets_[set].begin(), sets_[set].end(), [&](uint32_t top) {
        return top != 0 && symbol(top).kind == GrammarSymbol::CHARS &&
               rules_.char_sets[symbol(top).value].meets(range.low, range.high);
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
    const State      spelled = is_spelled(token_id) ? after_text(state, trie_.text(token_id)) : DEAD;
    const StateParts parts   = states_[state];
    if (!has_names_ || parts.partial.missing != 0) {
        return spelled;
    }
    const uint32_t named = set_after(parts.set, [&](const GrammarSymbol & symbol) {
        const bool same = symbol.value == static_cast<uint32_t>(token_id);
        return symbol.kind == (same ? GrammarSymbol::TOKEN : GrammarSymbol::NOT_TOKEN);
    });
    if (sets_[named].empty()) {
        return spelled;
    }
    StackSet both = sets_[named];
    if (states_[spelled].partial.missing == 0) {
        const StackSet & other = sets_[states_[spelled].set];
        both.insert(both.end(), other.begin(), other.end());
    }
    return state_of(set_of(std::move(both)), {0, 0});
}

bool GrammarAutomaton::is_spelled(int32_t token_id) const {
    const std::string & text = trie_.text(token_id);
    return !text.empty() && text.find('\0') == std::string::npos &&
           (!trie_.is_special(token_id) || spelled_[static_cast<size_t>(token_id)]);
}

bool GrammarAutomaton::is_complete(State state) const {
    const StateParts & parts = states_[state];
    const StackSet &   set   = sets_[parts.set];
    return parts.partial.missing == 0 && !set.empty() && set.front() == 0;
}

// --- what must follow ------------------------------------------------------------------------------------------

bool GrammarAutomaton::names_tokens(State state) const {
    const StackSet & set = sets_[states_[state].set];
    return has_names_ && std::any_of(set.begin(), set.end(), [&](uint32_t top) {
               return top != 0 && symbol(top).kind != GrammarSymbol::CHARS;
           });
}

// The only byte that can follow, or -1.
int GrammarAutomaton::forced_byte(State state) {
    int found = -1;
    for (size_t byte = 0; byte < N_BYTES; byte++) {
        if (after_byte(state, static_cast<uint8_t>(byte)) == DEAD) {
            continue;
        }
        if (found >= 0) {
            return -1;
        }
        found = static_cast<int>(byte);
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
    spent_              = 0;
    uint32_t after      = 0;
    uint32_t i          = trie_.find(begun, after);
    path_[begun.size()] = state;
    for (; i < after;) {
        const TokenTrie::Node & node = trie_.nodes()[i];
        const State             next = after_byte(path_[node.depth], node.byte);
        if (next == DEAD) {
            i = node.after;
            continue;
        }
        path_[node.depth + 1u] = next;
        for (uint32_t entry = trie_.nodes()[i - 1].tokens_after; entry < node.tokens_after; entry++) {
            const auto [token_id, special] = trie_.entries()[entry];
            if (!special || spelled_[static_cast<size_t>(token_id)]) {
                return true;
            }
        }
        i++;
    }
    return false;
}

GrammarAutomaton::State GrammarAutomaton::moved_to(GrammarAutomaton & other, State state) const {
    StackSet moved;
    for (const uint32_t top : sets_[states_[state].set]) {
        std::vector<uint32_t> symbols;
        for (uint32_t at = top; at != 0; at = stacks_[at].below) {
            symbols.push_back(stacks_[at].symbol);
        }
        uint32_t copy = 0;
        for (auto symbol = symbols.rbegin(); symbol != symbols.rend(); ++symbol) {
            copy = other.stack(*symbol, copy);
        }
        moved.push_back(copy);
    }
    return other.state_of(other.set_of(std::move(moved)), states_[state].partial);
}

}  // namespace pyg
