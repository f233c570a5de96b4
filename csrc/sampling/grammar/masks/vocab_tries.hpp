// Tries of a vocabulary, shared by all its grammars.
#pragma once

#include "sampling/grammar/masks/text_trie.hpp"
#include "sampling/grammar/masks/token_trie.hpp"

#include <memory>
#include <mutex>

namespace pyg {

// Any thread.
class VocabTries {
  public:
    explicit VocabTries(const llama_vocab * vocab) : tokens_(vocab) {}

    const TokenTrie & tokens() const { return tokens_; }

    // Created when a grammar first needs them.
    const TextTrie & strings() const {
        std::call_once(strings_once_, [&] { strings_ = std::make_unique<TextTrie>(tokens_, TextTrie::JSON_STRING); });
        return *strings_;
    }
    const TextTrie & plain() const {
        std::call_once(plain_once_, [&] { plain_ = std::make_unique<TextTrie>(tokens_, TextTrie::PLAIN); });
        return *plain_;
    }

  private:
    const TokenTrie                   tokens_;
    mutable std::once_flag            strings_once_, plain_once_;
    mutable std::unique_ptr<TextTrie> strings_, plain_;
};

}  // namespace pyg
