// The texts of a vocabulary's tokens as a tree of bytes, so that the tokens a grammar accepts are found by following
// what they have in common once.
#pragma once

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// Immutable once made; some ten bytes for each byte of text in the vocabulary. Tokens without text and those that
// hold a NUL are not in it.
class TokenTrie {
  public:
    // The nodes below the root in the order they are walked: each before those below it.
    struct Node {
        uint8_t  byte;
        uint16_t depth;         // of the root's children: 0
        uint32_t after;         // index of the first node that is not below this one
        uint32_t tokens_after;  // end of its tokens in entries(); they begin where the node's before end
    };

    // One token; special ones stand for themselves rather than for their text, unless a grammar says otherwise.
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
