// Limit of the tokens that a model spends on reasoning before it answers.
#pragma once

#include "boundary/handles.hpp"

#include <optional>
#include <vector>

namespace pyg {

// Counts the tokens between the texts that begin and end reasoning; each stretch of reasoning has the whole budget. At
// its end, and not within a character, it forces the tokens that end the reasoning. One thread at a time.
class ReasoningBudget {
  public:
    // With `options.reasoning_budget` of 0 or more. PYG_ERR_INVALID_PARAMETER
    ReasoningBudget(const Model & model, const pyg_sampling & options);

    // Return the token that has to come next; empty: any.
    std::optional<int32_t> forced() const;

    void accept(int32_t token_id);

  private:
    bool is_forcing() const;

    std::vector<int32_t> forced_;
    size_t               n_forced_ = 0;  // of these, accepted since they are forced
    UniqueSampler        machine_;       // upstream's state machine
};

}  // namespace pyg
