// Grammar constraint of a request, which may be lazy: inactive until a trigger.
#pragma once

#include "boundary/handles.hpp"
#include "sampling/grammar/cache.hpp"
#include "sampling/grammar/triggers/pattern.hpp"

#include <algorithm>

namespace pyg {

// One thread at a time.
class GrammarConstraint {
  public:
    // `stop_token_ids`, sorted, end generation as the vocabulary's own end tokens do: they are allowed only where the
    // grammar is complete, and never match as text. PYG_ERR_GRAMMAR, PYG_ERR_INVALID_PARAMETER.
    GrammarConstraint(const Model & model, const pyg_sampling & options, const std::vector<int32_t> & stop_token_ids);

    // False while a lazy grammar waits for its trigger: any token is allowed.
    bool is_active() const { return !waiting_; }

    bool allows(int32_t token_id);

    // True if the output is complete and nothing can follow.
    bool must_end() { return is_active() && matcher_.is_complete() && matcher_.mask()->is_empty(); }

    // Call body(token_id) for each allowed token: ascending, then end tokens if the grammar is complete.
    template <class Body>
    void for_each_allowed(Body && body) {
        const auto mask     = matcher_.mask();
        auto       next_end = stop_ids_.begin();
        mask->for_each([&](int32_t token_id) {
            while (next_end != stop_ids_.end() && *next_end < token_id) {
                ++next_end;
            }
            if (next_end == stop_ids_.end() || *next_end != token_id) {
                body(token_id);
            }
        });
        if (matcher_.is_complete()) {
            std::for_each(stop_ids_.begin(), stop_ids_.end(), body);
        }
    }

    // The first tokens of a text that must follow, at most `n_max`; none while a lazy grammar waits.
    std::vector<int32_t> forced_tokens(size_t n_max);

    // Advance by a sampled token. PYG_ERR_GRAMMAR when a lazy grammar does not match the text that triggered it.
    void accept(int32_t token_id);

  private:
    struct Trigger {
        std::string    literal;  // the pattern's text, if it has no special characters
        TriggerPattern pattern;

        // Start of the grammar in `text`, whose last `n_new` bytes are new; npos if it is not triggered.
        size_t find(const std::string & text, size_t n_new) const;
    };

    bool is_end(int32_t token_id) const { return std::binary_search(stop_ids_.begin(), stop_ids_.end(), token_id); }
    void check_triggers(int32_t token_id);
    void activate_at(size_t start);

    const std::shared_ptr<CompiledGrammar>  grammar_;
    GrammarMatcher                          matcher_;
    const std::vector<int32_t>              stop_ids_;
    bool                                    waiting_;
    std::vector<Trigger>                    triggers_;
    std::vector<int32_t>                    trigger_token_ids_;
    std::string                             text_;    // so far, while waiting
    std::vector<std::pair<size_t, int32_t>> tokens_;  // its tokens, each with its offset
};

}  // namespace pyg
