#include "sampling/grammar/masks/token_trie.hpp"

#include "common.h"

#include <algorithm>
#include <numeric>

namespace {

// Return true if the token is never visible in the output text.
bool stands_for_itself(const llama_vocab * vocab, int32_t token_id) {
    char byte;
    return llama_token_to_piece(vocab, token_id, &byte, 1, 0, false) == 0;
}

bool fits(const std::string & text) {
    return !text.empty() && text.size() <= UINT16_MAX && text.find('\0') == std::string::npos;
}

size_t common_prefix(const std::string & a, const std::string & b) {
    const size_t n = std::min(a.size(), b.size());
    return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
                               a.begin());
}

}  // namespace

namespace pyg {

TokenTrie::TokenTrie(const llama_vocab * vocab) {
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    for (int32_t token_id = 0; token_id < n_vocab; token_id++) {
        texts_.push_back(common_token_to_piece(vocab, token_id));
        special_.push_back(stands_for_itself(vocab, token_id));
        if (llama_vocab_is_eog(vocab, token_id)) {
            ends_.push_back(token_id);
        }
    }
    std::vector<int32_t> order(texts_.size());
    std::iota(order.begin(), order.end(), 0);
    order.erase(std::remove_if(order.begin(), order.end(), [&](int32_t id) { return !fits(text(id)); }), order.end());
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const int way = text(a).compare(text(b));
        return way != 0 ? way < 0 : a < b;
    });

    std::vector<uint32_t> path;  // nodes above the next one
    const std::string     nothing;
    const std::string *   before = &nothing;
    for (const int32_t token_id : order) {
        const std::string & now    = text(token_id);
        const size_t        shared = common_prefix(*before, now);
        for (; path.size() > shared; path.pop_back()) {
            nodes_[path.back()].after = static_cast<uint32_t>(nodes_.size());
        }
        for (size_t depth = shared; depth < now.size(); depth++) {
            path.push_back(static_cast<uint32_t>(nodes_.size()));
            nodes_.push_back({static_cast<uint8_t>(now[depth]), static_cast<uint16_t>(depth), 0,
                              static_cast<uint32_t>(entries_.size())});
        }
        entries_.push_back({token_id, is_special(token_id)});
        nodes_.back().tokens_after = static_cast<uint32_t>(entries_.size());
        max_depth_                 = std::max(max_depth_, static_cast<uint32_t>(now.size()));
        before                     = &now;
    }
    for (; !path.empty(); path.pop_back()) {
        nodes_[path.back()].after = static_cast<uint32_t>(nodes_.size());
    }
}

uint32_t TokenTrie::find(const std::string & text, uint32_t & after) const {
    uint32_t i   = 0;
    uint32_t end = static_cast<uint32_t>(nodes_.size());
    for (const char c : text) {
        while (i < end && nodes_[i].byte != static_cast<uint8_t>(c)) {
            i = nodes_[i].after;  // the next sibling
        }
        if (i >= end) {
            after = 0;
            return 0;
        }
        end = nodes_[i].after;
        i++;  // its first child
    }
    after = end;
    return i;
}

}  // namespace pyg
