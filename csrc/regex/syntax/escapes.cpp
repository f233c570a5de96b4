// Parser of regular expressions: escapes.
#include "regex/syntax/char_classes.hpp"
#include "regex/syntax/pattern_parser.hpp"
#include "regex/terms/language_store.hpp"

namespace pyg {

namespace {

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

int hex_value(uint32_t c) {
    if (c >= '0' && c <= '9') {
        return static_cast<int>(c - '0');
    }
    const uint32_t lower = c | 0x20;
    return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a' + 10) : -1;
}

}  // namespace

// After a backslash outside brackets.
Pattern PatternParser::escape() {
    const size_t start = position_ - 1;
    if (at_end()) {
        fail_at(start, "nothing follows the backslash");
    }
    const char32_t c = text_[position_++];
    CharSet        set;
    if (class_escape(c, set)) {
        return one_of(std::move(set));
    }
    switch (c) {
    case 'b':
    case 'B':
        return Pattern::word_boundary(word_chars(), c == 'B');
    case 'A':
    case 'Z':
        if (is_python()) {
            return Pattern::assertion(c == 'A' ? Pattern::Kind::START : Pattern::Kind::END);
        }
        break;
    default:
        break;
    }
    refuse_back_reference(c, start);
    const uint32_t code_point = char_escape(c, false);
    return one_of(CharSet::of({{code_point, code_point}}));
}

void PatternParser::refuse_back_reference(char32_t c, size_t start) {
    const bool is_named = c == 'k' && !is_python() && (has_names_ || sees("<"));
    const bool is_digit = c >= '1' && c <= '9';
    if (is_named || (is_digit && c - '0' <= n_groups_)) {
        fail_at(start, "back references are not supported: what they match is no regular language");
    }
    if (is_digit && (is_python() || c >= '8')) {
        fail_at(start, "there is no group of this number");
    }
}

bool PatternParser::class_escape(char32_t c, CharSet & set) {
    switch (c) {
    case 'd':
    case 'D':
        set = digit_chars();
        break;
    case 'w':
    case 'W':
        set = word_chars();
        break;
    case 's':
    case 'S':
        set = space_chars(syntax_);
        break;
    case 'p':
    case 'P':
        set = property();
        break;
    default:
        return false;
    }
    if (c < 'a') {
        set = complement(set);
    }
    return true;
}

// After \p or \P.
CharSet PatternParser::property() {
    const size_t start = position_ - 2;
    if (is_python() || !skip("{")) {
        fail_at(start, is_python() ? "Python's expressions have no \\p" : "\\p needs a property in braces, as \\p{L}");
    }
    std::string name;
    while (!at_end() && !sees("}")) {
        append_utf8(name, text_[position_++]);
    }
    CharSet set;
    if (!skip("}") || !unicode_property(name, set)) {
        fail_at(start, "unknown property of characters \"" + name + "\"");
    }
    return set;
}

bool PatternParser::hex(size_t n_digits, uint32_t & value) {
    if (position_ + n_digits > text_.size()) {
        return false;
    }
    value = 0;
    for (size_t i = 0; i < n_digits; i++) {
        const int digit = hex_value(text_[position_ + i]);
        if (digit < 0) {
            return false;
        }
        value = value * 16 + static_cast<uint32_t>(digit);
    }
    position_ += n_digits;
    return true;
}

// After \u: four digits, two halves of a surrogate pair, or up to six digits in braces.
uint32_t PatternParser::unicode_escape() {
    const size_t start = position_ - 2;
    uint32_t     value = 0;
    if (!is_python() && skip("{")) {
        size_t n = 0;
        for (; !at_end() && hex_value(text_[position_]) >= 0 && value <= LAST_CODE_POINT; position_++, n++) {
            value = value * 16 + static_cast<uint32_t>(hex_value(text_[position_]));
        }
        if (n == 0 || value > LAST_CODE_POINT || !skip("}")) {
            fail_at(start, "\\u{...} needs a code point in hexadecimal digits");
        }
        return value;
    }
    if (!hex(4, value)) {
        fail_at(start, "\\u needs four hexadecimal digits");
    }
    const size_t after_first = position_;
    uint32_t     low;
    if (value >= 0xD800 && value <= 0xDBFF && skip("\\u") && hex(4, low) && low >= 0xDC00 && low <= 0xDFFF) {
        return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    position_ = after_first;
    return value;
}

// Up to three octal digits.
uint32_t PatternParser::octal_escape(char32_t first) {
    uint32_t value = first - '0';
    for (int i = 0; i < 2 && !at_end() && text_[position_] >= '0' && text_[position_] <= '7'; i++) {
        const uint32_t longer = value * 8 + (text_[position_] - '0');
        if (longer > 0xFF) {
            break;
        }
        value = longer;
        position_++;
    }
    return value;
}

// The character that \c stands for. Escapes that mean nothing stand for themselves, as real schemas use them; only
// letters are refused, because other engines give a meaning to them.
uint32_t PatternParser::char_escape(char32_t c, bool in_class) {
    const size_t start = position_ - 2;
    uint32_t     value;
    switch (c) {
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'v':
        return '\v';
    case 'f':
        return '\f';
    case 'r':
        return '\r';
    case 'b':
        if (in_class) {
            return '\b';
        }
        break;
    case 'x':
        if (!hex(2, value)) {
            fail_at(start, "\\x needs two hexadecimal digits");
        }
        return value;
    case 'u':
        return unicode_escape();
    case 'c':
        if (!is_python() && !at_end() && is_ascii_letter(text_[position_])) {
            return text_[position_++] & 0x1F;
        }
        break;
    case 'a':
        if (is_python()) {
            return '\a';
        }
        break;
    case 'U':
        if (is_python() && hex(8, value) && value <= LAST_CODE_POINT) {
            return value;
        }
        break;
    default:
        if (c >= '0' && c <= '7') {
            return octal_escape(c);
        }
    }
    if (is_ascii_letter(c) || c == '8' || c == '9') {
        fail_at(start, std::string("unknown escape \\") + static_cast<char>(c));
    }
    return c;
}

}  // namespace pyg
