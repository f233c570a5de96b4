// Sets of characters that regular expressions name.
#include "regex/syntax/char_classes.hpp"

namespace pyg {

CharSet digit_chars() { return CharSet::of({{'0', '9'}}); }

CharSet word_chars() { return CharSet::of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }

CharSet space_chars(RegexSyntax syntax) {
    std::vector<std::pair<uint32_t, uint32_t>> ranges = {{'\t', '\r'}, {' ', ' '}};
    if (syntax == RegexSyntax::ECMASCRIPT) {
        ranges.insert(ranges.end(), {{0xA0, 0xA0},
                                     {0x1680, 0x1680},
                                     {0x2000, 0x200A},
                                     {0x2028, 0x2029},
                                     {0x202F, 0x202F},
                                     {0x205F, 0x205F},
                                     {0x3000, 0x3000},
                                     {0xFEFF, 0xFEFF}});
    }
    return CharSet::of(std::move(ranges));
}

CharSet line_ends(RegexSyntax syntax) {
    return syntax == RegexSyntax::PYTHON ? CharSet::of({{'\n', '\n'}})
                                         : CharSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

}  // namespace pyg
