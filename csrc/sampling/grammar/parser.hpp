// A parsed grammar in the form the automaton uses: sequences of symbols, with characters as sets of code points.
#pragma once

#include "regex/char_set.hpp"
#include "sampling/grammar/terminals.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct llama_vocab;

namespace pyg {

struct GrammarSymbol {
    enum Kind : uint8_t { END, RULE, CHARS, TOKEN, NOT_TOKEN, TERMINAL };

    Kind     kind;   // END: the end of an alternative
    uint32_t value;  // rule, index of the character set or the terminal, or token
};

// Immutable after parsing.
struct GrammarRules {
    std::vector<GrammarSymbol>         symbols;       // of all alternatives, one after the other
    std::vector<std::vector<uint32_t>> alternatives;  // per rule, the indices of their first symbols
    std::vector<CharSet>               char_sets;
    std::vector<GrammarTerminal>       terminals;
    uint32_t                           root = 0;  // a rule

    bool ends(uint32_t symbol) const { return symbols[symbol].kind == GrammarSymbol::END; }
};

// PYG_ERR_GRAMMAR, with line and column if known, unless `text` is a grammar with a rule `root`.
GrammarRules parse_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root);

}  // namespace pyg
