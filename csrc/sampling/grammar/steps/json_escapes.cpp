#include "sampling/grammar/steps/json_escapes.hpp"

namespace {

constexpr int NO_DIGIT = -1;

int digit_of(uint32_t character) {
    if (character >= '0' && character <= '9') {
        return static_cast<int>(character - '0');
    }
    const uint32_t lower = character | 0x20;
    return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a' + 10) : NO_DIGIT;
}

// The character that a backslash and this one mean; 0 if none.
uint32_t simple_escape(uint32_t character) {
    switch (character) {
    case '"':
    case '\\':
    case '/':
        return character;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return 0;
    }
}

}  // namespace

namespace pyg {

JsonEscape::Result JsonEscape::read(uint32_t character, uint32_t & code_point, bool tidy) {
    const bool   escaped = kind != NONE;
    const Result result  = read_any(character, code_point);
    const bool   is_tidy = !escaped || needs_escape(code_point) || code_point >= 0x80;
    return result == COMPLETE && tidy && !is_tidy ? INVALID : result;
}

JsonEscape::Result JsonEscape::read_any(uint32_t character, uint32_t & code_point) {
    switch (kind) {
    case NONE:
        if (character == '\\') {
            kind = BACKSLASH;
            return INCOMPLETE;
        }
        code_point = character;
        return character == '"' ? CLOSES : character < 0x20 ? INVALID : COMPLETE;
    case BACKSLASH:
        if (character == 'u') {
            kind = HEX;
            return INCOMPLETE;
        }
        return simple_escape(character) == 0 ? INVALID : complete(simple_escape(character), code_point);
    case LOW_BACKSLASH:
        kind = LOW_U;
        return character == '\\' ? INCOMPLETE : INVALID;
    case LOW_U:
        kind = LOW_HEX;
        return character == 'u' ? INCOMPLETE : INVALID;
    case HEX:
    case LOW_HEX:
        return read_digit(character, code_point);
    }
    return INVALID;
}

JsonEscape::Result JsonEscape::read_digit(uint32_t character, uint32_t & code_point) {
    const int digit = digit_of(character);
    if (digit == NO_DIGIT) {
        return INVALID;
    }
    value = value << 4 | static_cast<uint32_t>(digit);
    if (n_digits < 3) {
        n_digits++;
        return INCOMPLETE;
    }
    const bool is_low = value >= 0xDC00 && value <= 0xDFFF;
    if (kind == LOW_HEX) {
        return is_low ? complete(0x10000 + (high << 10) + (value - 0xDC00), code_point) : INVALID;
    }
    if (value >= 0xD800 && value <= 0xDBFF) {
        const uint32_t half = value - 0xD800;
        *this               = {};
        kind                = LOW_BACKSLASH;
        high                = half;
        return INCOMPLETE;
    }
    return is_low ? INVALID : complete(value, code_point);
}

JsonEscape::Result JsonEscape::complete(uint32_t decoded, uint32_t & code_point) {
    *this      = {};
    code_point = decoded;
    return COMPLETE;
}

}  // namespace pyg
