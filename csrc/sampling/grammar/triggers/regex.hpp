// Compiled form of a regular expression: a program for a Pike VM.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

using ByteSet = std::bitset<256>;

struct RegexInstruction {
    enum Kind : uint8_t {
        BYTE,                // matches one byte of a set
        SPLIT,               // continues at `next`, or else at `other`
        JUMP,                // continues at `next`
        SAVE,                // stores the start (even `slot`) or end of a group
        TEXT_BEGIN,          // ^
        TEXT_END,            // $
        WORD_BOUNDARY,       // \b
        NOT_WORD_BOUNDARY,   // \B
        LOOKAHEAD,           // (?=...): runs the program from `other` on over at most `max_bytes` bytes
        NEGATIVE_LOOKAHEAD,  // (?!...)
        MATCH,
    };

    Kind     kind;
    uint32_t next      = 1;
    uint32_t other     = 0;
    uint32_t slot      = 0;
    uint32_t max_bytes = 0;
    ByteSet  bytes     = {};
};

struct RegexProgram {
    std::vector<RegexInstruction> instructions;  // starts with the first
    uint32_t                      n_groups = 0;
};

// PYG_ERR_GRAMMAR, with the reason, for an invalid ECMAScript regular expression, or one that cannot be matched in
// linear time: with a back reference or an unbounded lookahead.
RegexProgram compile_regex(const std::string & pattern);

}  // namespace pyg
