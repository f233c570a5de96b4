// A grammar as one of upstream's samplers, for chains that callers make themselves. It is followed as in requests, and
// not by upstream's parser: that keeps every way to read an ambiguous text, and tries one way after the other to match
// the pattern that a lazy grammar waits for.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// Of `options` only those of the grammar matter. The caller owns the sampler. Its `accept` throws PYG_ERR_GRAMMAR when
// a lazy grammar does not match the text that triggered it; `accept` and `apply` do when the grammar is too ambiguous.
// PYG_ERR_GRAMMAR, PYG_ERR_INVALID_PARAMETER.
llama_sampler * make_grammar_sampler(const Model & model, const pyg_sampling & options);

}  // namespace pyg
