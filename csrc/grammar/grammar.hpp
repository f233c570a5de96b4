// GBNF grammars are parsed once before upstream sees them: its own parser prints what is wrong to stderr and
// returns nothing.
#pragma once

#include <string>

struct llama_grammar_parser;
struct llama_vocab;

namespace pyg {

// What upstream's parser makes of `text`, checked: every rule it uses is defined, and none begins with itself.
// PYG_ERR_GRAMMAR, with line and column where there is one, unless it is a grammar with a rule `root`.
llama_grammar_parser parsed_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root);
void                 require_grammar(const llama_vocab * vocab, const char * text, const char * root);

}  // namespace pyg
