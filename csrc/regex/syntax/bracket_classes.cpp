// Parser of regular expressions: sets in brackets.
#include "regex/syntax/char_classes.hpp"
#include "regex/syntax/pattern_parser.hpp"

namespace pyg {

// After "[". ECMAScript's [] is nothing and its [^] everything; Python takes a ] in first place for itself.
CharSet PatternParser::bracket_class() {
    const size_t                               start    = position_ - 1;
    const bool                                 negative = skip("^");
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    const auto add = [&](const CharSet & set) { ranges.insert(ranges.end(), set.ranges.begin(), set.ranges.end()); };
    for (bool is_first = true; at_end() || !sees("]") || (is_first && is_python()); is_first = false) {
        if (at_end()) {
            fail_at(start, "the set does not end: ] is missing");
        }
        const size_t item = position_;
        uint32_t     low, high;
        CharSet      set;
        if (!class_atom(low, set)) {
            add(set);
            continue;
        }
        const size_t after    = position_;
        const bool   is_range = skip("-") && !at_end() && !sees("]") && class_atom(high, set);
        if (!is_range) {  // the hyphen stands for itself
            position_ = after;
            ranges.emplace_back(low, low);
            continue;
        }
        if (low > high) {
            fail_at(item, "the range ends before it begins");
        }
        ranges.emplace_back(low, high);
    }
    position_++;
    const CharSet set    = CharSet::of(std::move(ranges));
    const CharSet folded = flags_.ignore_case ? in_any_case(set) : set;
    return negative ? complement(folded) : folded;
}

// One character, or false and a set of them.
bool PatternParser::class_atom(uint32_t & code_point, CharSet & set) {
    code_point = text_[position_++];
    if (code_point != '\\') {
        return true;
    }
    if (at_end()) {
        fail_at(position_ - 1, "nothing follows the backslash");
    }
    const char32_t c = text_[position_++];
    if (class_escape(c, set)) {
        return false;
    }
    code_point = char_escape(c, true);
    return true;
}

}  // namespace pyg
