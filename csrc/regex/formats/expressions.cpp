// The format "regex": expressions of ECMA-262 that are valid for certain, with the flag "u" or without. Nested groups
// go MOST_NESTED deep; what is left out are back references, properties of characters, and second names of groups,
// which might be the first.
#include "regex/formats/format_parts.hpp"

namespace pyg {

namespace {

constexpr int MOST_NESTED = 8;

const std::string ESCAPE = "\\\\(?:[\\^$\\\\.*+?()\\[\\]{}|/fnrtvdDwWsS]|c[A-Za-z]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})";

// Ranges that do not end before they begin.
std::string ranges(char first, char last) {
    std::string pattern;
    for (char c = first; c <= last; c++) {
        pattern += std::string(pattern.empty() ? "" : "|") + c + "-[" + c + "-" + last + "]";
    }
    return pattern;
}

std::string bracket_class() {
    const std::string letter = "[^\\\\\\]\\[\\^-]|\\[|\\^";
    // A hyphen between two members would be a range: members that are not ranges are followed by none.
    const std::string member = ranges('0', '9') + "|" + ranges('A', 'Z') + "|" + ranges('a', 'z') + "|" + letter + "|" +
                               ESCAPE + "|\\\\b|\\\\-";
    return "\\[\\^?-?(?:" + member + ")*-?\\]";
}

// {n}, {n,} and {n,m} with n <= m.
std::string counts() {
    std::string pattern = "\\{(?:[0-9]{1,4},?|0,[0-9]{1,4}";
    for (char c = '1'; c <= '9'; c++) {
        pattern += std::string("|") + c + ",(?:[" + c + "-9]|[1-9][0-9]{1,3})";
    }
    return pattern + "|[1-9][0-9],[1-9][0-9]{2,3})\\}";
}

}  // namespace

Language regular_expressions(Languages & languages) {
    const Language quantifier = matched_by(languages, "(?:(?:[*+?]|" + counts() + ")[?]?)?");
    const Language simple = matched_by(languages, "[^\\^$\\\\.*+?()\\[\\]{}|]|\\.|" + ESCAPE + "|" + bracket_class());
    const Language anchor = matched_by(languages, "\\^|\\$|\\\\[bB]");
    const Language opened = matched_by(languages, "\\((?:\\?(?::|<[A-Za-z_][A-Za-z_0-9]*>))?");
    const Language looks  = matched_by(languages, "\\(\\?<?[=!]");
    const Language bar = languages.text("|"), closed = languages.text(")");
    const auto     list = [&](Language item) {
        const Language items = languages.repeat(item, 0, UNBOUNDED);
        return languages.concat(items, languages.repeat(languages.concat(bar, items), 0, UNBOUNDED));
    };
    Language expressions = list(languages.any_of({languages.concat(simple, quantifier), anchor}));
    for (int depth = 0; depth < MOST_NESTED; depth++) {
        const Language inner = languages.concat(expressions, closed);
        const Language group = languages.concat(languages.concat(opened, inner), quantifier);
        expressions          = list(
            languages.any_of({languages.concat(simple, quantifier), anchor, group, languages.concat(looks, inner)}));
    }
    const Language two_names = matched_by(languages, "[^]*\\(\\?<[A-Za-z_][^]*\\(\\?<[A-Za-z_][^]*");
    return languages.without(expressions, two_names);
}

}  // namespace pyg
