// GBNF grammars are parsed here before upstream sees them: its own parser only prints errors to stderr.
#pragma once

#include <string>

struct llama_grammar_parser;
struct llama_vocab;

namespace pyg {

// Parses `text` with upstream's parser and checks that every rule it uses is defined and none begins with itself.
// PYG_ERR_GRAMMAR, with line and column if known, unless it is a grammar with a rule `root`.
llama_grammar_parser parsed_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root);

}  // namespace pyg
