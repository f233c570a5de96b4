// Tokenization of one text, with upstream's limits checked first.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// The model of a handle. PYG_ERR_TOKENIZER if it has no vocabulary: most of upstream's functions would fail an assert.
std::shared_ptr<Model> shared_with_vocabulary(pyg_model * handle);

// The tokens of a text, without special tokens around it. PYG_ERR_INVALID_PARAMETER or PYG_ERR_OUT_OF_MEMORY if it is
// too long, PYG_ERR_TOKENIZER if it has too many tokens.
std::vector<llama_token> tokenize(const Model & model, const char * text, size_t text_len, bool parse_special);

}  // namespace pyg
