// Trie of a vocabulary's token texts, so that a grammar processes common prefixes only once.
#pragma once

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// Immutable after construction; takes about ten bytes per byte of vocabulary text. Tokens without text or with a NUL
// are omitted.
class TokenTrie {
  public:
    // The nodes below the root in depth-first order, parents first.
    struct Node {
        uint8_t  byte;
        uint16_t depth;         // of the root's children: 0
        uint32_t after;         // index of the first node that is not below this one
        uint32_t tokens_after;  // end of its tokens in entries(); they begin at the end of the previous node's
    };

    // Special tokens match by id rather than by text, unless a grammar mentions their text.
    struct Entry {
        int32_t token_id;
        bool    special;
    };

    explicit TokenTrie(const llama_vocab * vocab);

    // Range of the nodes strictly below the one for `text`, which is not empty: from the result to `after`, empty if no
    // token is longer and begins so.
    uint32_t find(const std::string & text, uint32_t & after) const;

    const std::vector<Node> &    nodes() const { return nodes_; }
    const std::vector<Entry> &   entries() const { return entries_; }
    const std::vector<int32_t> & ends() const { return ends_; }  // end-of-generation tokens of the vocabulary
    uint32_t                     max_depth() const { return max_depth_; }

    int32_t             n_vocab() const { return static_cast<int32_t>(texts_.size()); }
    const std::string & text(int32_t token_id) const { return texts_[static_cast<size_t>(token_id)]; }
    bool                is_special(int32_t token_id) const { return special_[static_cast<size_t>(token_id)]; }

  private:
    std::vector<std::string> texts_;
    std::vector<bool>        special_;
    std::vector<int32_t>     ends_;  // sorted
    std::vector<Node>        nodes_;
    std::vector<Entry>       entries_;
    uint32_t                 max_depth_ = 0;
};

}  // namespace pyg
