// A parsed grammar in the form the automaton uses: sequences of symbols, with characters as sets of code points.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

struct llama_vocab;

namespace pyg {

// Code points, as sorted inclusive ranges that neither touch nor overlap.
struct CharSet {
    std::vector<std::pair<uint32_t, uint32_t>> ranges;

    bool contains(uint32_t code_point) const { return meets(code_point, code_point); }
    bool meets(uint32_t low, uint32_t high) const;  // true if it contains any of low..high
};

struct GrammarSymbol {
    enum Kind : uint8_t { END, RULE, CHARS, TOKEN, NOT_TOKEN };

    Kind     kind;   // END: the end of an alternative
    uint32_t value;  // rule, index of the character set, or token
};

// Immutable after parsing.
struct GrammarRules {
    std::vector<GrammarSymbol>         symbols;       // of all alternatives, one after the other
    std::vector<std::vector<uint32_t>> alternatives;  // per rule, the indices of their first symbols
    std::vector<CharSet>               char_sets;
    uint32_t                           root = 0;  // a rule

    bool ends(uint32_t symbol) const { return symbols[symbol].kind == GrammarSymbol::END; }
};

// PYG_ERR_GRAMMAR, with line and column if known, unless `text` is a grammar with a rule `root`.
GrammarRules parse_grammar(const llama_vocab * vocab, const std::string & text, const std::string & root);

}  // namespace pyg
