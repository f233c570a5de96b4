// Token mask: the set of tokens that a grammar allows next.
//
// A vocabulary has 100,000 tokens and more, and a grammar thousands of masks: most have few tokens, or those of a text
// (any string, digits) with a few others. So a mask is a union of bit sets, shared with other masks, and a list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace pyg {

// A set of tokens, one bit each.
class TokenBits {
  public:
    explicit TokenBits(int32_t n_vocab) : words_((static_cast<size_t>(n_vocab) + 63) / 64) {}

    void add(int32_t token_id) { words_[static_cast<size_t>(token_id) / 64] |= bit(token_id); }
    void add_all(const TokenBits & other) {
        for (size_t i = 0; i < words_.size(); i++) {
            words_[i] |= other.words_[i];
        }
    }
    void remove(int32_t token_id) { words_[static_cast<size_t>(token_id) / 64] &= ~bit(token_id); }
    bool has(int32_t token_id) const { return words_[static_cast<size_t>(token_id) / 64] & bit(token_id); }

    const std::vector<uint64_t> & words() const { return words_; }
    size_t                        n_bytes() const { return words_.size() * sizeof(uint64_t); }

  private:
    friend class TokenMaskBuilder;

    static uint64_t bit(int32_t token_id) { return uint64_t{1} << (static_cast<uint32_t>(token_id) % 64); }

    std::vector<uint64_t> words_;
};

// Immutable. Any thread.
class TokenMask {
  public:
    TokenMask() = default;
    TokenMask(std::vector<std::shared_ptr<const TokenBits>> shared, std::shared_ptr<const TokenBits> own,
              std::vector<int32_t> listed)
        : bits_(std::move(shared)), listed_(std::move(listed)), n_own_bytes_(own ? own->n_bytes() : 0) {
        if (own) {
            bits_.push_back(std::move(own));
        }
    }

    bool has(int32_t token_id) const {
        return std::any_of(bits_.begin(), bits_.end(), [&](const auto & bits) { return bits->has(token_id); }) ||
               std::binary_search(listed_.begin(), listed_.end(), token_id);
    }
    bool is_empty() const {
        return listed_.empty() && std::all_of(bits_.begin(), bits_.end(), [](const auto & bits) {
                   return std::all_of(bits->words().begin(), bits->words().end(), [](uint64_t w) { return w == 0; });
               });
    }

    // Without what it shares.
    size_t n_bytes() const {
        return sizeof(*this) + n_own_bytes_ + listed_.size() * sizeof(int32_t) + bits_.size() * sizeof(bits_[0]);
    }

    // Copy it as 32-bit words: bit i % 32 of to[i / 32] is token i. `n` is at most ceil(n_vocab / 32).
    void copy_to(uint32_t * to, size_t n) const {
        if (bits_.empty()) {
            std::fill_n(to, n, 0u);
        }
        for (size_t part = 0; part < bits_.size(); part++) {
            const std::vector<uint64_t> & words = bits_[part]->words();
            const auto                    put   = [to, part](size_t i, uint64_t word) {
                to[i] = (part == 0 ? 0 : to[i]) | static_cast<uint32_t>(word);
            };
            for (size_t i = 0; i < n / 2; i++) {
                put(2 * i, words[i]);
                put(2 * i + 1, words[i] >> 32);
            }
            if (n % 2 == 1) {
                put(n - 1, words[n / 2]);
            }
        }
        for (const int32_t token_id : listed_) {
            to[static_cast<size_t>(token_id) / 32] |= uint32_t{1} << (static_cast<uint32_t>(token_id) % 32);
        }
    }

    // The only token, or -1 if there are none or several.
    int32_t only() const {
        int32_t found = -1;
        size_t  n     = 0;
        for_each_while([&](int32_t token_id) {
            found = token_id;
            return ++n < 2;
        });
        return n == 1 ? found : -1;
    }

    // Call body(token_id) for each token, ascending.
    template <class Body>
    void for_each(Body && body) const {
        for_each_while([&](int32_t token_id) {
            body(token_id);
            return true;
        });
    }

  private:
    friend class TokenMaskBuilder;

    // As long as body(token_id) returns true.
    template <class Body>
    void for_each_while(Body && body) const {
        auto         next    = listed_.begin();
        const size_t n_words = bits_.empty() ? 0 : bits_[0]->words().size();
        for (size_t i = 0; i < n_words; i++) {
            uint64_t left = 0;
            for (const auto & bits : bits_) {
                left |= bits->words()[i];
            }
            for (; next != listed_.end() && static_cast<size_t>(*next) / 64 == i; ++next) {
                left |= uint64_t{1} << (static_cast<uint32_t>(*next) % 64);
            }
            for (; left != 0; left &= left - 1) {
                if (!body(static_cast<int32_t>(64 * i) + __builtin_ctzll(left))) {
                    return;
                }
            }
        }
        for (; next != listed_.end(); ++next) {
            if (!body(*next)) {
                return;
            }
        }
    }

    std::vector<std::shared_ptr<const TokenBits>> bits_;
    std::vector<int32_t>                          listed_;  // sorted
    size_t                                        n_own_bytes_ = 0;
};

// Builds masks one after the other. For one thread at a time.
class TokenMaskBuilder {
  public:
    explicit TokenMaskBuilder(int32_t n_vocab) : bits_(n_vocab), in_use_((bits_.words_.size() + 63) / 64) {}

    void add(int32_t token_id) {
        bits_.add(token_id);
        in_use_[static_cast<uint32_t>(token_id) / 4096] |= uint64_t{1} << (static_cast<uint32_t>(token_id) / 64 % 64);
    }
    void add_all(const TokenBits & bits) {
        bits_.add_all(bits);
        std::fill(in_use_.begin(), in_use_.end(), ~uint64_t{0});
    }
    void add_shared(std::shared_ptr<const TokenBits> bits) {
        if (std::find(shared_.begin(), shared_.end(), bits) != shared_.end()) {
            return;
        }
        if (shared_.size() < MOST_SHARED) {
            shared_.push_back(std::move(bits));
        } else {
            add_all(*bits);
        }
    }
    void add_all(const TokenMask & mask) {
        for (const auto & bits : mask.bits_) {
            add_shared(bits);
        }
        std::for_each(mask.listed_.begin(), mask.listed_.end(), [this](int32_t token_id) { add(token_id); });
    }
    bool has(int32_t token_id) const {
        return bits_.has(token_id) ||
               std::any_of(shared_.begin(), shared_.end(), [&](const auto & bits) { return bits->has(token_id); });
    }

    // The tokens added since clear(), which comes before the next mask.
    TokenMask finish() {
        const size_t         n_most = bits_.words_.size() / 4;  // of longer lists, bits are shorter
        std::vector<int32_t> listed;
        for_each_in_use([&](size_t i) {
            for (uint64_t left = bits_.words_[i]; left != 0 && listed.size() <= n_most; left &= left - 1) {
                listed.push_back(static_cast<int32_t>(64 * i) + __builtin_ctzll(left));
            }
        });
        std::shared_ptr<const TokenBits> own;
        if (listed.size() > n_most) {
            own = std::make_shared<const TokenBits>(bits_);
            listed.clear();
        }
        listed.shrink_to_fit();
        return TokenMask(std::move(shared_), std::move(own), std::move(listed));
    }

    void clear() {
        for_each_in_use([&](size_t i) { bits_.words_[i] = 0; });
        std::fill(in_use_.begin(), in_use_.end(), 0);
        shared_.clear();
    }

  private:
    static constexpr size_t MOST_SHARED = 4;

    // Call body(index) for each word of bits_ that may have tokens, ascending.
    template <class Body>
    void for_each_in_use(Body && body) const {
        for (size_t i = 0; i < in_use_.size(); i++) {
            for (uint64_t left = in_use_[i]; left != 0; left &= left - 1) {
                const size_t word = 64 * i + static_cast<size_t>(__builtin_ctzll(left));
                if (word < bits_.words_.size()) {
                    body(word);
                }
            }
        }
    }

    TokenBits                                     bits_;
    std::vector<uint64_t>                         in_use_;  // the words of bits_ with tokens, one bit each
    std::vector<std::shared_ptr<const TokenBits>> shared_;
};

}  // namespace pyg
