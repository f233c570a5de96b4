// Tokens of text that a grammar forces.
#pragma once

#include "sampling/grammar/text_matcher.hpp"

#include <vector>

namespace pyg {

// At most `n_max` tokens, each allowed after those before it, whose text every continuation begins with. They are the
// vocabulary's own tokenization of that text, without the last ones if a longer token may replace them: one that begins
// in the forced text and ends after it.
std::vector<int32_t> forced_tokens(const GrammarOfModel & grammar, GrammarMatcher position, size_t n_max);

// As forced_tokens, but only of the text that is forced right here, at most some bytes for each of `n_max` tokens.
// Tokens that the grammar names by id, or that take the whole mask to find, are left out. Cheap where nothing is
// forced.
std::vector<int32_t> forced_text_tokens(const CompiledGrammar & grammar, GrammarMatcher & position, size_t n_max);

}  // namespace pyg
