// Compiled grammars, and the position of a text in one.
#pragma once

#include "sampling/grammar/masks/token_mask.hpp"
#include "sampling/grammar/masks/token_trie.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace pyg {

class GrammarAutomaton;
class VocabTries;

// A grammar and its automaton, shared by threads. The automaton is bounded: when it grows too large it is replaced, and
// its users switch over at their next step.
class CompiledGrammar {
  public:
    // `n_bytes`: where it keeps what it takes, for a cache. PYG_ERR_GRAMMAR
    CompiledGrammar(const llama_vocab * vocab, std::shared_ptr<const VocabTries> tries, const std::string & text,
                    const std::string & root, std::shared_ptr<std::atomic<size_t>> n_bytes);

    const llama_vocab * vocab() const { return vocab_; }
    const TokenTrie &   trie() const;
    size_t              n_bytes() const { return *n_bytes_; }

  private:
    friend class GrammarMatcher;

    struct Followed;  // the rules, and what following them has created: stacks, languages, states of objects and arrays

    void                              start_again();
    std::shared_ptr<GrammarAutomaton> fresh_automaton() const;

    const llama_vocab * const                  vocab_;
    const std::shared_ptr<const VocabTries>    tries_;
    const std::string                          text_;
    const std::string                          root_;
    const std::vector<int32_t>                 spelled_;  // special tokens whose text the grammar mentions
    const std::shared_ptr<std::atomic<size_t>> n_bytes_;
    std::mutex                                 mutex_;  // guards everything below
    std::shared_ptr<Followed>                  followed_;
    std::shared_ptr<GrammarAutomaton>          automaton_;       // of `followed_`
    size_t                                     most_bytes_ = 0;  // of `followed_`
};

// The position of one text in a grammar. For one thread at a time; any number of matchers share a grammar.
class GrammarMatcher {
  public:
    explicit GrammarMatcher(std::shared_ptr<CompiledGrammar> grammar);

    // Tokens allowed next, and whether the text may end here. Ignores tokens that end generation.
    std::shared_ptr<const TokenMask> mask();
    bool                             is_complete();

    bool allows(int32_t token_id);

    // Advance. Return false and change nothing if the grammar does not allow it.
    bool accept(int32_t token_id);
    bool accept_text(const std::string & text);

    // Take back the last calls of accept and accept_text that advanced.
    void   rollback(size_t n);
    size_t n_accepted() const { return reads_.size(); }

    // Text that must follow, in bytes, at most `n_max`: the longest that every continuation begins with. Empty where
    // the text may end, and where the grammar names tokens by id.
    std::string forced_text(size_t n_max);

    // True if the grammar allows a token here that begins with the bytes `begun` and is longer, after this text up to
    // `begun` was accepted.
    bool allows_longer(const std::string & begun);

  private:
    struct Read {
        int32_t     token_id;  // or TEXT
        std::string text;
    };
    using State                        = uint32_t;  // of the automaton
    static constexpr int32_t TEXT      = -1;
    static constexpr State   NOT_KNOWN = UINT32_MAX;

    GrammarAutomaton & current();  // with the grammar's lock held
    void               read_again();
    bool               advance(Read read);

    static State after(GrammarAutomaton & automaton, const Read & read, State state);

    std::shared_ptr<CompiledGrammar>           grammar_;
    std::shared_ptr<CompiledGrammar::Followed> followed_;
    std::shared_ptr<GrammarAutomaton>          automaton_;
    std::vector<Read>                          reads_;
    std::vector<State>                         states_;  // before each read, and now
};

}  // namespace pyg
