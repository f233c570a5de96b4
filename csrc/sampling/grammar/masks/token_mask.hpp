// Token mask: a set of tokens, one bit each, that a grammar allows next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyg {

class TokenMask {
  public:
    explicit TokenMask(int32_t n_vocab) : words_((static_cast<size_t>(n_vocab) + 63) / 64) {}

    void add(int32_t token_id) { word(token_id) |= bit(token_id); }
    void add_all(const TokenMask & other) {
        for (size_t i = 0; i < words_.size(); i++) {
            words_[i] |= other.words_[i];
        }
    }
    void remove(int32_t token_id) { word(token_id) &= ~bit(token_id); }
    bool has(int32_t token_id) const { return words_[static_cast<size_t>(token_id) / 64] & bit(token_id); }
    bool is_empty() const {
        return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
    }
    size_t n_bytes() const { return words_.size() * sizeof(uint64_t); }

    // Copy it as 32-bit words: bit i % 32 of to[i / 32] is token i. `n` is at most ceil(n_vocab / 32).
    void copy_to(uint32_t * to, size_t n) const {
        for (size_t i = 0; i < n; i++) {
            to[i] = static_cast<uint32_t>(words_[i / 2] >> (32 * (i % 2)));
        }
    }

    // The only token, or -1 if there are none or several.
    int32_t only() const {
        int32_t found = -1;
        for (size_t i = 0; i < words_.size(); i++) {
            if (words_[i] == 0) {
                continue;
            }
            if (found >= 0 || (words_[i] & (words_[i] - 1)) != 0) {
                return -1;
            }
            found = static_cast<int32_t>(64 * i) + __builtin_ctzll(words_[i]);
        }
        return found;
    }

    // Call body(token_id) for each token, ascending.
    template <class Body>
    void for_each(Body && body) const {
        for (size_t i = 0; i < words_.size(); i++) {
            for (uint64_t left = words_[i]; left != 0; left &= left - 1) {
                body(static_cast<int32_t>(64 * i) + __builtin_ctzll(left));
            }
        }
    }

  private:
    static uint64_t bit(int32_t token_id) { return uint64_t{1} << (static_cast<uint32_t>(token_id) % 64); }
    uint64_t &      word(int32_t token_id) { return words_[static_cast<size_t>(token_id) / 64]; }

    std::vector<uint64_t> words_;
};

}  // namespace pyg
