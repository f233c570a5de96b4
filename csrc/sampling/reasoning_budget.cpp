#include "sampling/reasoning_budget.hpp"

#include "reasoning-budget.h"

namespace {

std::vector<int32_t> checked_tokens(const pyg::Model & model, const int32_t * token_ids, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        model.require_token(token_ids[i], i);
    }
    return {token_ids, token_ids + n};
}

std::vector<std::vector<int32_t>> checked_ends(const pyg::Model & model, const pyg_sampling & options) {
    std::vector<std::vector<int32_t>> ends;
    const int32_t *                   next = options.reasoning_end_ids;
    for (int32_t i = 0; i < options.n_reasoning_ends; i++) {
        ends.push_back(checked_tokens(model, next, options.reasoning_end_lengths[i]));
        next += options.reasoning_end_lengths[i];
    }
    return ends;
}

}  // namespace

namespace pyg {

ReasoningBudget::ReasoningBudget(const Model & model, const pyg_sampling & options)
    : forced_(checked_tokens(model, options.reasoning_forced, options.n_reasoning_forced)) {
    if (forced_.empty()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "reasoning_budget needs tokens that end the reasoning");
    }
    const auto start = checked_tokens(model, options.reasoning_start, options.n_reasoning_start);
    machine_.reset(common_reasoning_budget_init(
        model.vocab, {start}, checked_ends(model, options), forced_, options.reasoning_budget,
        options.reasoning_begun ? REASONING_BUDGET_COUNTING : REASONING_BUDGET_IDLE));
}

bool ReasoningBudget::is_forcing() const {
    return common_reasoning_budget_get_state(machine_.get()) == REASONING_BUDGET_FORCING;
}

std::optional<int32_t> ReasoningBudget::forced() const {
    return is_forcing() ? std::optional<int32_t>(forced_[n_forced_]) : std::nullopt;
}

void ReasoningBudget::accept(int32_t token_id) {
    n_forced_ = is_forcing() ? n_forced_ + 1 : 0;
    llama_sampler_accept(machine_.get(), token_id);
    if (!is_forcing()) {
        n_forced_ = 0;
    }
}

}  // namespace pyg
