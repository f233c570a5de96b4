// GBNF grammars are parsed once before upstream sees them: its own parser prints what is wrong to stderr and
// returns nothing.
#pragma once

struct llama_vocab;

namespace pyg {

// PYG_ERR_GRAMMAR, with line and column where there is one, unless `text` is a grammar with a rule `root`.
void require_grammar(const llama_vocab * vocab, const char * text, const char * root);

}  // namespace pyg
