// Parser of regular expressions: groups, look-arounds and flags.
#include "regex/syntax/pattern_parser.hpp"

#include <algorithm>

namespace pyg {

namespace {

// True if it depends on the text that follows it.
bool looks_ahead(const Pattern & pattern) {
    return pattern.kind == Pattern::Kind::LOOK_AHEAD || pattern.kind == Pattern::Kind::END ||
           pattern.kind == Pattern::Kind::WORD_BOUNDARY ||
           std::any_of(pattern.children.begin(), pattern.children.end(), looks_ahead);
}

}  // namespace

// After "(".
Pattern PatternParser::group() {
    const size_t start = position_ - 1;
    if (!skip("?")) {
        return group_contents(start);
    }
    if (skip(":")) {
        return group_contents(start);
    }
    if (skip("=") || skip("!")) {
        return look(Pattern::Kind::LOOK_AHEAD, text_[position_ - 1] == '!', start);
    }
    if (skip("<=") || skip("<!")) {
        return look(Pattern::Kind::LOOK_BEHIND, text_[position_ - 1] == '!', start);
    }
    if (skip("<") || (is_python() && skip("P<"))) {
        if (is_python() && text_[position_ - 2] != 'P') {
            fail_at(start, "Python writes named groups as (?P<name>...)");
        }
        group_name('>', start);
        return group_contents(start);
    }
    if (is_python() && sees("P=")) {
        fail_at(start, "back references are not supported: what they match is no regular language");
    }
    if (is_python() && skip("#")) {
        while (!at_end() && !sees(")")) {
            position_++;
        }
        if (!skip(")")) {
            fail_at(start, "the comment does not end");
        }
        return {};
    }
    if (sees(">")) {
        fail_at(start, "atomic groups are not supported");
    }
    if (sees("(")) {
        fail_at(start, "conditional groups are not supported");
    }
    Pattern result;
    if (flags_group(start, result)) {
        return result;
    }
    fail_at(start, "unknown kind of group");
}

Pattern PatternParser::group_contents(size_t start) {
    const Flags outer  = flags_;
    Pattern     result = choice();
    flags_             = outer;
    if (!skip(")")) {
        fail_at(start, "the group does not end: ) is missing");
    }
    return result;
}

Pattern PatternParser::look(Pattern::Kind kind, bool negative, size_t start) {
    Pattern inner = group_contents(start);
    if (kind == Pattern::Kind::LOOK_BEHIND && looks_ahead(inner)) {
        fail_at(start, "look-aheads, $ and word boundaries inside a look-behind are not supported");
    }
    return Pattern::look(kind, std::move(inner), negative);
}

void PatternParser::group_name(char end, size_t start) {
    const size_t first = position_;
    while (!at_end() && text_[position_] != static_cast<unsigned char>(end) && text_[position_] != ')') {
        position_++;
    }
    if (position_ == first || at_end() || text_[position_] == ')') {
        fail_at(start, "the group's name is missing or does not end");
    }
    position_++;
}

// (?i), for the rest of the expression, or (?i:...). ECMAScript has only the second.
bool PatternParser::flags_group(size_t start, Pattern & result) {
    Flags flags = flags_;
    bool  value = true;
    for (; !at_end() && !sees(":") && !sees(")"); position_++) {
        switch (text_[position_]) {
        case 'i':
            flags.ignore_case = value;
            break;
        case 's':
            flags.dot_all = value;
            break;
        case 'm':
            flags.multiline = value;
            break;
        case 'a':
        case 'u':
            if (!is_python()) {
                return false;
            }
            break;
        case '-':
            value = false;
            break;
        case 'x':
        case 'L':
            fail_at(start, "the flags x and L are not supported");
        default:
            return false;
        }
    }
    if (skip(":")) {
        const Flags outer = flags_;
        flags_            = flags;
        result            = group_contents(start);
        flags_            = outer;
        return true;
    }
    if (!skip(")")) {
        return false;
    }
    if (!is_python()) {
        fail_at(start, "ECMAScript has no flags for the whole expression; write (?i:...)");
    }
    if (start != 0) {
        fail_at(start, "flags for the whole expression must be at its start");
    }
    flags_ = flags;
    return true;
}

}  // namespace pyg
