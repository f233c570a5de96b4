// White space between the tokens of JSON. A model cannot write it without end.
#pragma once

#include <cstdint>

namespace pyg {

// What white space has been read: INLINE + n characters on the line, RETURN (a line feed must follow), or INDENTED + n
// characters after a line break. NO_WHITE_SPACE: none is allowed, or one character more would be too much.
constexpr uint32_t INLINE         = 0;
constexpr uint32_t MOST_INLINE    = 4;
constexpr uint32_t RETURN         = 8;
constexpr uint32_t SECOND_RETURN  = 9;
constexpr uint32_t SECOND_INDENT  = 10;
constexpr uint32_t NO_WHITE_SPACE = 11;
constexpr uint32_t INDENTED       = 16;
constexpr uint32_t MOST_INDENTED  = INDENTED + 40;

inline bool is_blank(uint32_t code_point) { return code_point == ' ' || code_point == '\t'; }

// Any usual layout: four characters on a line, or up to two line breaks with any indentation. The white space after one
// more character.
inline uint32_t any_white_space_after(uint32_t before, uint32_t code_point) {
    if (is_blank(code_point)) {
        return before < MOST_INLINE                            ? before + 1
               : before == INDENTED || before == SECOND_INDENT ? before
                                                               : NO_WHITE_SPACE;
    }
    if (code_point == '\r') {
        return before <= MOST_INLINE ? RETURN : before == INDENTED ? SECOND_RETURN : NO_WHITE_SPACE;
    }
    if (code_point == '\n') {
        return before <= RETURN                                ? INDENTED
               : before == INDENTED || before == SECOND_RETURN ? SECOND_INDENT
                                                               : NO_WHITE_SPACE;
    }
    return NO_WHITE_SPACE;
}

// What models are to write: one space, or where lines may break, a line break and up to 40 characters of indentation.
inline uint32_t tidy_white_space_after(uint32_t before, uint32_t code_point, bool may_break) {
    if (code_point == '\n') {
        return before == INLINE && may_break ? INDENTED : NO_WHITE_SPACE;
    }
    if (before >= INDENTED) {
        return is_blank(code_point) && before < MOST_INDENTED ? before + 1 : NO_WHITE_SPACE;
    }
    return code_point == ' ' && before == INLINE ? INLINE + 1 : NO_WHITE_SPACE;
}

// False in the middle of a line break.
inline bool white_space_may_end(uint32_t white_space) { return white_space != RETURN && white_space != SECOND_RETURN; }

}  // namespace pyg
