// Regular expressions as trees.
#pragma once

#include "regex/char_set.hpp"
#include "regex/languages.hpp"

#include <string>
#include <vector>

namespace pyg {

struct Pattern {
    enum class Kind : uint8_t {
        CHARS,     // one character of `set`
        SEQUENCE,  // without children: the empty text
        CHOICE,
        REPEAT,         // the child, `least` to `most` times
        LOOK_AHEAD,     // the child matches the text that follows
        LOOK_BEHIND,    // the child matches text that ends here
        START,          // of the whole text
        END,            // of the whole text
        WORD_BOUNDARY,  // between a character of `set` and one outside or none
    };

    Kind                 kind = Kind::SEQUENCE;
    CharSet              set;
    std::vector<Pattern> children;
    uint32_t             least = 0, most = 0;
    bool                 negative       = false;  // of the last three kinds but START and END
    bool                 has_assertions = false;  // this or a child is one of the last five kinds
    bool                 needs_past     = false;  // the same, but of those that depend on text before them
    uint32_t             depth          = 1;

    static Pattern chars(CharSet set);
    static Pattern assertion(Kind kind);
    static Pattern word_boundary(CharSet word, bool negative);
    static Pattern look(Kind kind, Pattern inner, bool negative);
    static Pattern list(Kind kind, std::vector<Pattern> children);
    static Pattern repeat(Pattern one, uint32_t least, uint32_t most);
};

// PYG_ERR_GRAMMAR with the place and the reason: it is invalid, or uses what is not supported (named).
Pattern parse_pattern(const std::string & pattern, RegexSyntax syntax);

class LanguageStore;

// The texts that match as a whole, or with a match anywhere.
Language compile_pattern(LanguageStore & store, const Pattern & pattern, bool whole);

}  // namespace pyg
