// One text that follows a grammar, token by token: with its end, and with a history to take tokens back.
#pragma once

#include "boundary/handles.hpp"
#include "sampling/grammar/matcher.hpp"

#include <memory>
#include <vector>

namespace pyg {

// A compiled grammar, and the tokens that end its texts. Immutable.
struct GrammarOfModel {
    std::shared_ptr<Model>           model;
    std::shared_ptr<CompiledGrammar> grammar;
    GrammarMatcher                   start;    // after the prefix
    std::vector<int32_t>             end_ids;  // sorted

    bool   is_end(int32_t token_id) const;
    size_t n_mask_words() const { return (static_cast<size_t>(model->n_vocab()) + 31) / 32; }
};

// One thread at a time.
class TextMatcher {
  public:
    explicit TextMatcher(std::shared_ptr<const GrammarOfModel> grammar)
        : grammar_(std::move(grammar)), matcher_(grammar_->start), n_before_(matcher_.n_accepted()) {}

    const GrammarOfModel & grammar() const { return *grammar_; }

    // Write the tokens allowed next, one bit each: (grammar().n_mask_words(),). Tokens that end the text are allowed
    // where it may end, and nothing else is after one of them.
    void mask(uint32_t * words);

    // Advance. Return false and change nothing if the token is not allowed. It must be in the vocabulary.
    bool accept(int32_t token_id);

    size_t n_accepted() const { return matcher_.n_accepted() - n_before_ + n_ends_; }
    void   rollback(size_t n);  // at most n_accepted()
    void   reset();

    bool is_complete() { return is_terminated() || matcher_.is_complete(); }
    bool is_terminated() const { return n_ends_ > 0; }

    // Tokens that must follow, at most `n_max`. The position does not change.
    std::vector<int32_t> forced(size_t n_max) const;

  private:
    std::shared_ptr<const GrammarOfModel> grammar_;
    GrammarMatcher                        matcher_;
    size_t                                n_before_;    // what the matcher had accepted at its start: the prefix
    size_t                                n_ends_ = 0;  // tokens that ended the text, after those of the matcher
};

}  // namespace pyg
