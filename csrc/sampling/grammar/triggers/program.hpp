// Regular expressions as programs: what a trigger's pattern is compiled to.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

using ByteSet = std::bitset<256>;

struct RegexInstruction {
    enum Kind : uint8_t {
        BYTE,               // one of a set's
        SPLIT,              // goes on at `next`, or else at `other`
        JUMP,               // goes on at `next`
        SAVE,               // a group's begin (an even `slot`) or end
        TEXT_BEGIN,         // ^
        TEXT_END,           // $
        WORD_BOUNDARY,      // \b
        NOT_WORD_BOUNDARY,  // \B
        LOOKAHEAD,  // (?=...): what follows matches the program from `other` on, which needs at most `reach` bytes
        NEGATIVE_LOOKAHEAD,  // (?!...)
        MATCH,
    };

    Kind     kind;
    uint32_t next      = 0;
    uint32_t other     = 0;
    uint32_t slot      = 0;
    uint32_t max_bytes = 0;
    ByteSet  bytes     = {};
};

struct RegexProgram {
    std::vector<RegexInstruction> instructions;  // begins with the first
    uint32_t                      n_groups = 0;
};

// Throws PYG_ERR_GRAMMAR, with the reason, for what is no regular expression of ECMAScript, or one that cannot be
// matched in a time that grows with the text: a back reference, a lookahead without an end.
RegexProgram compile_regex(const std::string & pattern);

}  // namespace pyg
