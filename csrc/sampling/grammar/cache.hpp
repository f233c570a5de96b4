// Cache of compiled grammars, shared by all requests of a model.
#pragma once

#include "sampling/grammar/matcher.hpp"

#include <list>
#include <mutex>
#include <string>

namespace pyg {

// The most recently used grammars of a model. Any thread.
class GrammarCache {
  public:
    // PYG_ERR_GRAMMAR
    std::shared_ptr<CompiledGrammar> get(const llama_vocab * vocab, const std::string & text, const std::string & root);

    uint64_t n_compiled() const;

  private:
    struct Entry {
        std::string                      key;
        std::mutex                       mutex;  // held while compiling it
        std::shared_ptr<CompiledGrammar> grammar;
    };

    std::shared_ptr<Entry>           entry(const std::string & key);
    std::shared_ptr<const TokenTrie> trie(const llama_vocab * vocab);

    mutable std::mutex                mutex_;
    std::list<std::shared_ptr<Entry>> entries_;  // most recently used first
    uint64_t                          n_compiled_ = 0;

    std::mutex                       trie_mutex_;
    std::shared_ptr<const TokenTrie> trie_;
};

}  // namespace pyg
