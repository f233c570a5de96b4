// Constraints on the tokens of a request, in addition to its grammar: allowed tokens, sequences that are never
// generated, and a minimum number of tokens.
#pragma once

#include "boundary/handles.hpp"

#include <algorithm>
#include <vector>

namespace pyg {

// One thread at a time.
class TokenConstraints {
  public:
    // `stop_token_ids`: sorted. PYG_ERR_INVALID_PARAMETER
    TokenConstraints(const Model & model, const pyg_sampling & options, const std::vector<int32_t> & stop_token_ids);

    // True if nothing is forbidden, from here on.
    bool none() const { return allowed_.empty() && bad_.empty() && !needs_more(); }
    // True if there are fewer tokens than the minimum.
    bool needs_more() const { return generated_.size() < min_tokens_; }

    bool                         allows(int32_t token_id) const { return allowed_.empty() || is_allowed(token_id); }
    const std::vector<int32_t> & allowed() const { return allowed_; }  // sorted; empty: all

    // Tokens that may not come next; `must_stop`: no token but a stop token can. *Borrowed until the next call.*
    const std::vector<int32_t> & forbidden(bool must_stop);

    void accept(int32_t token_id);

  private:
    bool is_allowed(int32_t token_id) const { return std::binary_search(allowed_.begin(), allowed_.end(), token_id); }

    const std::vector<int32_t>        stop_token_ids_;
    const size_t                      min_tokens_;
    std::vector<int32_t>              allowed_;
    std::vector<std::vector<int32_t>> bad_;
    std::vector<int32_t>              generated_;
    std::vector<int32_t>              forbidden_;
};

}  // namespace pyg
