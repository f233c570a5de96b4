// Index of the n-grams of a growing text: finds where the last tokens occurred before.
//
// A table maps n-grams of a few lengths to the token after their latest occurrence. Adding a token and a look-up take
// constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyg {

class NgramIndex {
  public:
    // An earlier occurrence of the last tokens.
    struct Match {
        uint32_t next   = 0;  // index of the token after it; 0: there is none
        uint32_t length = 0;  // tokens in common, at most MAX_LENGTH
    };
    static constexpr uint32_t MAX_LENGTH = 32;

    // Add the tokens that were appended since the last call.
    void extend(const std::vector<int32_t> & tokens);

    // Find the latest occurrence of the longest indexed n-gram that the tokens end with. `tokens`: as last given to
    // extend.
    Match find(const std::vector<int32_t> & tokens) const { return find(tokens, tokens); }
    // The same of what another text, `tail`, ends with.
    Match find(const std::vector<int32_t> & tokens, const std::vector<int32_t> & tail) const;

  private:
    struct Entry {
        uint32_t hash = 0;
        uint32_t next = 0;  // 0: empty
    };

    Entry &       entry_of(uint32_t hash);
    const Entry & entry_of(uint32_t hash) const { return const_cast<NgramIndex &>(*this).entry_of(hash); }
    void          grow();

    std::vector<Entry> entries_;  // a power of two, at most half of them used
    size_t             n_used_    = 0;
    size_t             n_indexed_ = 0;  // tokens
};

}  // namespace pyg
