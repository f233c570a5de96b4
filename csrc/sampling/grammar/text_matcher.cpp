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
        now().matcher.mask()->copy_to(words, n_words);
    }
    const bool may_end = is_complete();
    for (const int32_t token_id : grammar_->end_ids) {
        uint32_t & word = word_of(words, token_id);
        word            = may_end ? word | bit_of(token_id) : word & ~bit_of(token_id);
    }
}

bool TextMatcher::accept(int32_t token_id) {
    Position   next   = now();
    const bool is_end = grammar_->is_end(token_id);
    if (is_end ? !is_complete() : is_terminated() || !next.matcher.accept(token_id)) {
        return false;
    }
    next.is_terminated = is_end;
    history_.push_back(std::move(next));
    return true;
}

void TextMatcher::rollback(size_t n) {
    history_.erase(history_.end() - static_cast<std::ptrdiff_t>(n), history_.end());
}

void TextMatcher::reset() { history_.assign(1, {grammar_->start, false}); }

std::vector<int32_t> TextMatcher::forced(size_t n_max) const {
    return is_terminated() ? std::vector<int32_t>() : forced_tokens(*grammar_, now().matcher, n_max);
}

}  // namespace pyg
