// Grammars compiled once for a model, and shared by all requests that use them.
#pragma once

#include "grammar/grammar_automaton.hpp"

#include <list>
#include <mutex>
#include <string>

namespace pyg {

// One grammar and what has been worked out of it, shared by threads. Its automaton is bounded: one that has grown too
// large is left to those who are still in it, who move to the next one at their next step.
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

// Where one text is in a grammar. One thread at a time; any number of them share a grammar.
class GrammarMatcher {
  public:
    explicit GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar);

    // The tokens that may come next, and whether the text may end here. Tokens that end generation are left out, or
    // to be ignored.
    std::shared_ptr<const TokenMask> mask();
    bool                             is_complete() const;

    bool allows(int32_t token_id);

    // Moves on; false, and nothing has happened, when the grammar does not allow it.
    bool accept(int32_t token_id);
    bool accept_text(const std::string & text);

  private:
    GrammarAutomaton & current();  // with the grammar's lock held
    bool               move_to(GrammarAutomaton::State state);

    std::shared_ptr<CompiledGrammar>  grammar_;
    std::shared_ptr<GrammarAutomaton> automaton_;
    GrammarAutomaton::State           state_ = GrammarAutomaton::START;
};

// The grammars of one model that were used last. Any thread.
class GrammarCache {
  public:
    // PYG_ERR_GRAMMAR
    std::shared_ptr<CompiledGrammar> get(const llama_vocab * vocab, const std::string & text, const std::string & root);

    uint64_t n_compiled() const;

  private:
    struct Entry {
        std::string                      key;
        std::mutex                       mutex;  // held by whoever compiles it
        std::shared_ptr<CompiledGrammar> grammar;
    };

    std::shared_ptr<Entry>           entry(const std::string & key);
    std::shared_ptr<const TokenTrie> trie(const llama_vocab * vocab);

    mutable std::mutex                mutex_;
    std::list<std::shared_ptr<Entry>> entries_;  // the one used last first
    uint64_t                          n_compiled_ = 0;

    std::mutex                       trie_mutex_;
    std::shared_ptr<const TokenTrie> trie_;
};

}  // namespace pyg
