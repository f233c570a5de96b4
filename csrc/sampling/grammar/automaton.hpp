// Pushdown automaton of a grammar, as a deterministic automaton over bytes that is built lazily.
//
// A state is the set of parser stacks possible at this point (each a symbol to match, and below it the symbols to
// return to), and the bytes of an incomplete character. Stacks share their tails, and equal stacks, sets and states are
// stored once, so text seen before costs one table look-up per byte, and the token mask of a state is computed once.
#pragma once

#include "sampling/grammar/parser.hpp"
#include "sampling/grammar/token_mask.hpp"
#include "sampling/grammar/token_trie.hpp"

#include <memory>
#include <string>
#include <unordered_map>

namespace pyg {

// For one thread at a time; GrammarMatcher ensures that. The rules, the trie and the set of spelled special tokens must
// outlive it.
class GrammarAutomaton {
  public:
    using State = uint32_t;

    static constexpr State DEAD  = 0;  // no continuation, and the text is not complete
    static constexpr State START = 1;

    // `spelled`: special tokens whose text the grammar mentions; they match as that text.
    GrammarAutomaton(const GrammarRules & rules, const TokenTrie & trie, const std::vector<bool> & spelled);

    // The state after one more token, or text, even if the token ends generation. PYG_ERR_GRAMMAR when the grammar is
    // so ambiguous that it has too many stacks or takes too long. Afterwards, and after running out of memory, the
    // automaton is still usable.
    State after_token(State state, int32_t token_id);
    State after_text(State state, const std::string & text);

    // True if the text so far is complete.
    bool is_complete(State state) const;

    // The longest text, in bytes and at most `n_max`, that every continuation begins with; empty where the text may end
    // and where the grammar names tokens.
    std::string forced_text(State state, size_t n_max);

    // True if a token that begins with `begun` and is longer continues the text, which already ends with `begun`.
    bool allows_longer(State state, const std::string & begun);

    // Mask of the tokens allowed next, except those that end generation. Shared and immutable.
    std::shared_ptr<const TokenMask> mask(State state);

    // The equivalent state in another automaton of the same grammar.
    State moved_to(GrammarAutomaton & other, State state) const;

    size_t n_bytes() const { return n_bytes_; }

  private:
    // A stack: a symbol, and the stack to continue with after it. Stack 0 is empty.
    struct Stack {
        uint32_t symbol;
        uint32_t below;
    };

    using StackSet = std::vector<uint32_t>;  // sorted

    // Bits of an incomplete character, and the number of missing bytes.
    struct Partial {
        uint32_t value;
        uint32_t missing;
    };

    struct StateParts {
        uint32_t set;
        Partial  partial;
    };

    struct SetHash {
        size_t operator()(const StackSet & set) const;
    };

    uint32_t         stack(uint32_t symbol, uint32_t below);
    uint32_t         advanced_stack(uint32_t top);
    const StackSet & expanded(uint32_t start);
    uint32_t         set_of(StackSet stacks);
    State            state_of(uint32_t set, Partial partial);

    // The set of stacks after advancing those whose symbol satisfies `matches`.
    template <class Matches>
    uint32_t set_after(uint32_t set, Matches && matches);

    State after_byte(State state, uint8_t byte);
    int   forced_byte(State state);
    bool  names_tokens(State state) const;
    State begin_character(uint32_t set, uint8_t byte);
    State continue_character(uint32_t set, Partial partial, uint8_t byte);
    State after_character(uint32_t set, uint32_t code_point);
    bool  may_become(uint32_t set, Partial partial) const;
    void  add_spelled_tokens(State state, TokenMask & mask);
    void  add_named_tokens(const StateParts & parts, TokenMask & mask) const;
    void  spend(size_t work);
    bool  is_spelled(int32_t token_id) const;

    const GrammarSymbol & symbol(uint32_t stack) const { return rules_.symbols[stacks_[stack].symbol]; }

    const GrammarRules &      rules_;
    const TokenTrie &         trie_;
    const std::vector<bool> & spelled_;
    const bool                has_names_;  // the grammar names tokens

    std::vector<Stack>                              stacks_;
    std::unordered_map<uint64_t, uint32_t>          stack_ids_;
    std::unordered_map<uint32_t, StackSet>          expanded_;
    std::vector<StackSet>                           sets_;
    std::unordered_map<StackSet, uint32_t, SetHash> set_ids_;
    std::vector<StateParts>                         states_;
    std::unordered_map<uint64_t, State>             state_ids_[4];  // by missing bytes
    std::vector<uint32_t>                           after_;         // (n_states, 256)
    std::vector<std::shared_ptr<const TokenMask>>   masks_;         // by state, computed on first use
    std::vector<State>                              path_;          // scratch buffer
    size_t                                          n_bytes_ = 0;
    size_t                                          spent_   = 0;  // work since the last call from outside
};

}  // namespace pyg
