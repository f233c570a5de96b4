#include "sampling/token_constraints.hpp"

#include <iterator>

namespace pyg {

TokenConstraints::TokenConstraints(const Model & model, const pyg_sampling & options,
                                   const std::vector<int32_t> & stop_token_ids)
    : stop_token_ids_(stop_token_ids), min_tokens_(static_cast<size_t>(std::max(options.min_tokens, 0))),
      allowed_(options.allowed_token_ids, options.allowed_token_ids + options.n_allowed) {
    for (int32_t i = 0; i < options.n_allowed; i++) {
        model.require_token(allowed_[static_cast<size_t>(i)], i);
    }
    if (!allowed_.empty() && options.grammar) {  // which decides where the output ends
        allowed_.insert(allowed_.end(), stop_token_ids.begin(), stop_token_ids.end());
    }
    std::sort(allowed_.begin(), allowed_.end());
    const int32_t * next = options.bad_token_ids;
    for (int32_t i = 0; i < options.n_bad; i++) {
        if (options.bad_lengths[i] < 1) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "bad sequence %d has no tokens", i);
        }
        bad_.emplace_back(next, next + options.bad_lengths[i]);
        next += options.bad_lengths[i];
        for (const int32_t token_id : bad_.back()) {
            model.require_token(token_id, i);
        }
    }
}

const std::vector<int32_t> & TokenConstraints::forbidden(bool must_stop) {
    forbidden_.clear();
    if (needs_more() && !must_stop) {
        forbidden_ = stop_token_ids_;
    }
    for (const std::vector<int32_t> & sequence : bad_) {
        const size_t n_before = sequence.size() - 1;
        if (n_before <= generated_.size() && std::equal(sequence.begin(), std::prev(sequence.end()),
                                                        generated_.end() - static_cast<std::ptrdiff_t>(n_before))) {
            forbidden_.push_back(sequence.back());
        }
    }
    return forbidden_;
}

void TokenConstraints::accept(int32_t token_id) {
    if (!none()) {
        generated_.push_back(token_id);
    }
}

}  // namespace pyg
