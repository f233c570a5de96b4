// Compiled grammars, and the position of a text in one.
#pragma once

#include "sampling/grammar/automaton.hpp"

#include <mutex>
#include <string>

namespace pyg {

// A grammar and its automaton, shared by threads. The automaton is bounded: when it grows too large it is replaced, and
// its users switch over at their next step.
class CompiledGrammar {
  public:
    // PYG_ERR_GRAMMAR
    CompiledGrammar(const llama_vocab * vocab, std::shared_ptr<const TokenTrie> trie, const std::string & text,
                    const std::string & root);

    const TokenTrie & trie() const { return *trie_; }

  private:
    friend class GrammarMatcher;

    std::shared_ptr<GrammarAutomaton> fresh() const;

    const std::shared_ptr<const TokenTrie> trie_;
    const GrammarRules                     rules_;
    const std::vector<bool>                spelled_;  // (n_vocab,) special tokens whose text the grammar mentions
    std::mutex                             mutex_;    // guards every automaton of this grammar
    std::shared_ptr<GrammarAutomaton>      automaton_;
};

// The position of one text in a grammar. For one thread at a time; any number of matchers share a grammar.
class GrammarMatcher {
  public:
    explicit GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar);

    // Tokens allowed next, and whether the text may end here. Ignores tokens that end generation.
    std::shared_ptr<const TokenMask> mask();
    bool                             is_complete() const;

    bool allows(int32_t token_id);

    // Advance. Return false and change nothing if the grammar does not allow it.
    bool accept(int32_t token_id);
    bool accept_text(const std::string & text);

    // Text that must follow, in bytes, at most `n_max`: the longest that every continuation begins with. Empty where
    // the text may end, and where the grammar names tokens by id.
    std::string forced_text(size_t n_max);

    // True if the grammar allows a token here that begins with the bytes `begun` and is longer, after this text up to
    // `begun` was accepted.
    bool allows_longer(const std::string & begun);

  private:
    GrammarAutomaton & current();  // with the grammar's lock held
    bool               move_to(GrammarAutomaton::State state);

    std::shared_ptr<CompiledGrammar>  grammar_;
    std::shared_ptr<GrammarAutomaton> automaton_;
    GrammarAutomaton::State           state_ = GrammarAutomaton::START;
};

}  // namespace pyg
