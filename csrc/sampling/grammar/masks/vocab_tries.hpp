// Tries of a vocabulary, shared by all its grammars.
#pragma once

#include "sampling/grammar/masks/text_trie.hpp"
#include "sampling/grammar/masks/token_trie.hpp"
#include "sampling/grammar/terminals.hpp"

#include <memory>
#include <mutex>

namespace pyg {

// How the free texts of a terminal are spelled.
inline TextTrie::Spelling spelling_of(const GrammarTerminal & terminal) {
    return terminal.is_text ? TextTrie::PLAIN : terminal.any_spelling ? TextTrie::JSON_STRING : TextTrie::TIDY_STRING;
}

// Any thread.
class VocabTries {
  public:
    explicit VocabTries(const llama_vocab * vocab) : tokens_(vocab) {}

    const TokenTrie & tokens() const { return tokens_; }

    // Created when a grammar that needs it is first compiled.
    const TextTrie & texts(TextTrie::Spelling spelling) const {
        std::call_once(once_[spelling], [&] { texts_[spelling] = std::make_unique<TextTrie>(tokens_, spelling); });
        return *texts_[spelling];
    }

  private:
    const TokenTrie                   tokens_;
    mutable std::once_flag            once_[3];
    mutable std::unique_ptr<TextTrie> texts_[3];  // by spelling
};

}  // namespace pyg
