// Pushdown automaton of a grammar, as a deterministic automaton over bytes that is built lazily.
//
// A state is the set of parser stacks possible at this point, and the bytes of an incomplete character. Stacks share
// their tails, and equal stacks, sets and states are stored once, so text seen before costs one table look-up per byte,
// and the token mask of a state is computed once. Only bytes that a stack may read are tried.
#pragma once

#include "sampling/grammar/masks/token_mask.hpp"
#include "sampling/grammar/masks/utf8_prefix.hpp"
#include "sampling/grammar/masks/vocab_tries.hpp"
#include "sampling/grammar/parser.hpp"
#include "sampling/grammar/steps/steps.hpp"
#include "sampling/grammar/tables/id_index.hpp"
#include "sampling/grammar/tables/stack_sets.hpp"
#include "sampling/grammar/tables/transitions.hpp"

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace pyg {

// For one thread at a time; GrammarMatcher ensures that. What it is created from must outlive it; the steps keep what
// they have seen.
class GrammarAutomaton {
  public:
    using State = uint32_t;

    static constexpr State DEAD  = 0;  // no continuation, and the text is not complete
    static constexpr State START = 1;

    // `spelled`: special tokens whose text the grammar mentions, sorted; they match as that text.
    GrammarAutomaton(const GrammarRules & rules, GrammarSteps & steps, const VocabTries & tries,
                     const std::vector<int32_t> & spelled);

    // The state after one more token, or text, even if the token ends generation. PYG_ERR_GRAMMAR when the grammar is
    // so ambiguous that it has too many stacks or takes too long. Afterwards, and after running out of memory, the
    // automaton is still usable.
    State after_token(State state, int32_t token_id);
    State after_text(State state, const std::string & text);

    // True if the text so far is complete.
    bool is_complete(State state) const;

    // Mask of the tokens allowed next, except those that end generation. Shared and immutable.
    std::shared_ptr<const TokenMask> mask(State state);

    // The longest text, in bytes and at most `n_max`, that every continuation begins with; empty where the text may end
    // and where the grammar names tokens.
    std::string forced_text(State state, size_t n_max);

    // True if a token that begins with `begun` and is longer continues the text, which already ends with `begun`.
    bool allows_longer(State state, const std::string & begun);

    // The equivalent state in another automaton of the same steps.
    State moved_to(GrammarAutomaton & other, State state) const {
        const StackSets::Set set = sets_[states_[state].set];
        return other.state_of(other.set_of({set.begin(), set.end()}), states_[state].partial);
    }

    size_t n_bytes() const { return n_bytes_ + sets_.n_bytes() + transitions_.n_bytes(); }  // without the steps

  private:
    static constexpr uint32_t NOT_KNOWN = UINT32_MAX;

    struct StateParts {
        uint32_t   set;
        Utf8Prefix partial;
    };

    void     expand(StackId stack, std::vector<StackId> & all);
    uint32_t set_of(std::vector<StackId> stacks);
    State    state_of(uint32_t set, Utf8Prefix partial);
    uint32_t expanded_set(const std::vector<StackId> & stacks);

    void  add_row(State state);
    State after_byte(State state, uint8_t byte);
    State begin_character(uint32_t set, uint8_t byte);
    State continue_character(uint32_t set, Utf8Prefix partial, uint8_t byte);
    State after_character(uint32_t set, uint32_t code_point);
    bool  may_become(uint32_t set, Utf8Prefix partial);
    int   forced_byte(State state);
    bool  names_tokens(State state);
    void  spend(size_t work);
    bool  is_spelled(int32_t token_id) const;

    // masks/automaton_masks.cpp
    struct FreeText {  // a stack inside of free text, between two characters
        StackId  stack;
        Language language;
    };
    bool                          is_free_text(StackId stack, FreeText & text);
    uint32_t                      canonical_set(uint32_t set);
    uint32_t                      compute_canonical_set(uint32_t set);
    void                          add_spelled_tokens(State state);
    void                          add_spelled_specials(State state);
    void                          add_named_tokens(const StateParts & parts);
    void                          add_free_text(const FreeText & text);
    void                          add_closers(const FreeText & text, const TextMask & mask);
    StackId                       with_language(StackId stack, Language language, bool forget_text);
    bool                          depends_on_text(const StackFrame & frame, uint32_t rest) const;
    bool                          is_allowed_alone(StackId stack, int32_t token_id);
    const TextMask &              short_mask(const FreeText & text);
    const TextMask &              long_mask(const FreeText & text);
    const TextTrie &              trie_of(const StackFrame & frame) const;
    State                         after_quote(StackId stack);
    const std::vector<uint32_t> & allowed_rests(const TextTrie & trie, State state);

    const GrammarRules &         rules_;
    GrammarSteps &               steps_;
    const VocabTries &           tries_;
    const std::vector<int32_t> & spelled_;
    const bool                   has_names_;            // the grammar names tokens
    uint32_t                     longest_spelled_ = 0;  // bytes of the longest of `spelled_`

    StackSets                                                   sets_;
    std::unordered_map<StackId, uint32_t>                       expanded_;  // the sets of those that expand to others
    std::vector<StateParts>                                     states_;
    std::vector<State>                                          whole_states_;    // by set, between two characters
    IdIndex                                                     partial_states_;  // inside of one
    Transitions                                                 transitions_;
    std::vector<uint32_t>                                       canonical_sets_;  // by set
    std::unordered_map<State, std::shared_ptr<const TokenMask>> masks_;
    std::map<std::pair<uint64_t, bool>, TextMask>               short_masks_;  // by (terminal, language), is plain
    std::map<std::pair<uint64_t, bool>, TextMask>               long_masks_;
    std::map<std::pair<const TextTrie *, State>, std::vector<uint32_t>> allowed_rests_;  // by the state after the quote
    std::vector<State>                                                  path_;           // scratch buffers
    std::vector<StackId>                                                after_;
    TokenMaskBuilder                                                    mask_;
    size_t                                                              n_bytes_ = 0;  // without sets and transitions
    size_t spent_ = 0;  // work since the last call from outside
};

}  // namespace pyg
