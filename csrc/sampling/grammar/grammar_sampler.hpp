// A grammar as an upstream sampler, for chains of the raw API. It uses the same automaton as requests instead of
// upstream's matcher, which explores every parse of an ambiguous text and backtracks over trigger patterns.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// Only the grammar's fields of `options` are used. The caller owns the sampler. Its `accept` throws PYG_ERR_GRAMMAR
// when a lazy grammar does not match the text that triggered it; `accept` and `apply` when the grammar is too
// ambiguous. PYG_ERR_GRAMMAR, PYG_ERR_INVALID_PARAMETER.
llama_sampler * make_grammar_sampler(const Model & model, const pyg_sampling & options);

}  // namespace pyg
