// Terminals of a grammar that are not characters: JSON values that match a schema, and texts that match a regular
// expression. In GBNF, which they extend:
//
//   value ::= %json {"type": "integer"}                 values of a schema
//   value ::= %json[any-order,extra-members,any-spelling,unknown-keywords] {...}      options, any of them
//   word  ::= %regex "[a-z]+"                           the expression as a JSON string, in Python's syntax
#pragma once

#include "schema/shapes.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pyg {

struct GrammarTerminal {
    std::unique_ptr<SchemaShapes> shapes;                // of a regular expression: only its languages are used
    bool                          is_text      = false;  // a regular expression
    Language                      text         = Languages::NOTHING;
    bool                          any_order    = false;  // members come in any order, else in the schema's
    bool                          any_spelling = false;  // any white space (white_space.hpp), and escapes in names
};

// A grammar without its terminals: in their places, references to tokens from FIRST_TERMINAL_TOKEN on.
struct SplitGrammar {
    std::string                  text;
    std::vector<GrammarTerminal> terminals;
};

constexpr uint32_t FIRST_TERMINAL_TOKEN = 1'000'000'000;

// PYG_ERR_GRAMMAR
SplitGrammar split_terminals(const std::string & text);

}  // namespace pyg
