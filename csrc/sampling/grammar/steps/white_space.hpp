// White space between the tokens of JSON: four characters on a line, or up to two line breaks with any indentation. A
// model cannot write it without end, and every usual layout is allowed.
#pragma once

#include <cstdint>

namespace pyg {

// What white space has been read: INLINE + n characters on the line, or one of the others.
enum WhiteSpace : uint32_t {
    INLINE           = 0,
    MOST_INLINE      = 4,
    RETURN           = 5,  // a carriage return, which a line feed must follow
    INDENTED         = 6,  // after a line break
    SECOND_RETURN    = 7,
    SECOND_INDENTED  = 8,
    NO_WHITE_SPACE   = 9,  // none is allowed, or one character more would be too much
};

// The white space after one more character; NO_WHITE_SPACE if that is not allowed.
inline uint32_t white_space_after(uint32_t before, uint32_t code_point) {
    switch (code_point) {
    case ' ':
    case '\t':
        return before < MOST_INLINE ? before + 1 : before == INDENTED || before == SECOND_INDENTED ? before
                                                                                                   : NO_WHITE_SPACE;
    case '\r':
        return before <= MOST_INLINE ? RETURN : before == INDENTED ? SECOND_RETURN : NO_WHITE_SPACE;
    case '\n':
        return before <= RETURN ? INDENTED : before == INDENTED || before == SECOND_RETURN ? SECOND_INDENTED
                                                                                           : NO_WHITE_SPACE;
    default:
        return NO_WHITE_SPACE;
    }
}

// False in the middle of a line break.
inline bool white_space_may_end(uint32_t white_space) {
    return white_space != RETURN && white_space != SECOND_RETURN;
}

}  // namespace pyg
