// Parser of GBNF grammars, with error messages: upstream's parser prints them to stderr.
#pragma once

#include <string>

struct llama_grammar_parser;
struct llama_vocab;

namespace pyg {

// Parse `text` with upstream's parser and check that every rule is defined and none is left-recursive. PYG_ERR_GRAMMAR,
// with line and column if known, unless it is a grammar with a rule `root`.
llama_grammar_parser parsed_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root);

}  // namespace pyg
