// The texts of a vocabulary's tokens as a tree of bytes, so that a grammar follows their common prefixes only once.
#pragma once

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// Immutable once made; takes about ten bytes per byte of vocabulary text. Tokens without text or with a NUL are left
// out.
class TokenTrie {
  public:
    // The nodes below the root in depth-first order, parents first.
    struct Node {
        uint8_t  byte;
        uint16_t depth;         // of the root's children: 0
        uint32_t after;         // index of the first node that is not below this one
        uint32_t tokens_after;  // end of its tokens in entries(); they begin at the end of the previous node's
    };

    // One token; special ones match by id rather than by text, unless a grammar says otherwise.
    struct Entry {
        int32_t token_id;
        bool    special;
    };

    explicit TokenTrie(const llama_vocab * vocab);

    const std::vector<Node> &    nodes() const { return nodes_; }
    const std::vector<Entry> &   entries() const { return entries_; }
    const std::vector<int32_t> & ends() const { return ends_; }  // tokens that the vocabulary ends generation with
    uint32_t                     max_depth() const { return max_depth_; }

    int32_t             n_vocab() const { return static_cast<int32_t>(texts_.size()); }
    const std::string & text(int32_t token_id) const { return texts_[static_cast<size_t>(token_id)]; }
    bool                is_special(int32_t token_id) const { return special_[static_cast<size_t>(token_id)]; }

  private:
    void build();

    std::vector<std::string> texts_;
    std::vector<bool>        special_;
    std::vector<int32_t>     ends_;  // sorted
    std::vector<Node>        nodes_;
    std::vector<Entry>       entries_;
    uint32_t                 max_depth_ = 0;
};

}  // namespace pyg
