#include "sampling/grammar/text_matcher.hpp"

#include "sampling/grammar/forced_tokens.hpp"

#include <algorithm>

namespace {

constexpr uint32_t WORD_BITS = 32;

uint32_t & word_of(uint32_t * words, int32_t token_id) { return words[static_cast<uint32_t>(token_id) / WORD_BITS]; }
uint32_t   bit_of(int32_t token_id) { return uint32_t{1} << (static_cast<uint32_t>(token_id) % WORD_BITS); }

}  // namespace

namespace pyg {

bool GrammarOfModel::is_end(int32_t token_id) const {
    return std::binary_search(end_ids.begin(), end_ids.end(), token_id);
}

void TextMatcher::mask(uint32_t * words) {
    const size_t n_words = grammar_->n_mask_words();
    if (is_terminated()) {
        std::fill_n(words, n_words, 0);
    } else {
        matcher_.mask()->copy_to(words, n_words);
    }
    const bool may_end = is_complete();
    for (const int32_t token_id : grammar_->end_ids) {
        uint32_t & word = word_of(words, token_id);
        word            = may_end ? word | bit_of(token_id) : word & ~bit_of(token_id);
    }
}

bool TextMatcher::accept(int32_t token_id) {
    if (grammar_->is_end(token_id)) {
        const bool allowed = is_complete();
        n_ends_ += allowed ? 1 : 0;
        return allowed;
    }
    return !is_terminated() && matcher_.accept(token_id);
}

void TextMatcher::rollback(size_t n) {
    const size_t n_ends = std::min(n, n_ends_);
    n_ends_ -= n_ends;
    matcher_.rollback(n - n_ends);
}

void TextMatcher::reset() { rollback(n_accepted()); }

std::vector<int32_t> TextMatcher::forced(size_t n_max) const {
    return is_terminated() ? std::vector<int32_t>() : forced_tokens(*grammar_, matcher_, n_max);
}

}  // namespace pyg
