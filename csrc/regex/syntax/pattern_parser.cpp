// Parser of regular expressions: alternatives, sequences and repetitions.
#include "regex/syntax/pattern_parser.hpp"

#include "boundary/guard.hpp"
#include "regex/syntax/char_classes.hpp"
#include "regex/terms/language_store.hpp"

#include <algorithm>

namespace pyg {

namespace {

constexpr uint32_t MOST_NESTED_GROUPS = 200;

std::vector<uint32_t> decoded(const std::string & pattern) {
    try {
        return code_points_of(pattern);
    } catch (const Failure &) {
        throw fail(PYG_ERR_GRAMMAR, "the regular expression is not valid UTF-8");
    }
}

bool is_digit_char(uint32_t c) { return c >= '0' && c <= '9'; }

}  // namespace

PatternParser::PatternParser(const std::string & pattern, RegexSyntax syntax)
    : text_(decoded(pattern)), source_(pattern), syntax_(syntax) {
    bool in_class = false;
    for (size_t i = 0; i < text_.size(); i++) {  // groups may be referred to before them
        if (text_[i] == '\\') {
            i++;
        } else if (text_[i] == '[' || text_[i] == ']') {
            in_class = text_[i] == '[';
        } else if (text_[i] == '(' && !in_class) {
            const auto after = [&](size_t k) { return i + k < text_.size() ? text_[i + k] : 0; };
            const bool named = after(1) == '?' && ((after(2) == '<' && after(3) != '=' && after(3) != '!') ||
                                                   (after(2) == 'P' && after(3) == '<'));
            has_names_       = has_names_ || named;
            n_groups_ += after(1) != '?' || named;
        }
    }
}

Pattern PatternParser::parse() {
    Pattern pattern = choice();
    if (!at_end()) {
        fail_at(position_, "unmatched )");
    }
    return pattern;
}

void PatternParser::fail_at(size_t position, const std::string & reason) const {
    std::string shown = source_.size() <= 80 ? source_ : source_.substr(0, 80);
    while (shown.size() < source_.size() && !shown.empty() && (static_cast<unsigned char>(shown.back()) & 0x80)) {
        shown.pop_back();  // whole characters
    }
    throw fail(PYG_ERR_GRAMMAR, "regular expression %s%s, character %zu: %s", shown.c_str(),
               shown.size() < source_.size() ? "..." : "", position, reason.c_str());
}

bool PatternParser::sees(const char * ascii) const {
    for (size_t i = position_; *ascii; ascii++, i++) {
        if (i >= text_.size() || text_[i] != static_cast<unsigned char>(*ascii)) {
            return false;
        }
    }
    return true;
}

bool PatternParser::skip(const char * ascii) {
    if (!sees(ascii)) {
        return false;
    }
    position_ += std::char_traits<char>::length(ascii);
    return true;
}

Pattern PatternParser::one_of(CharSet set) const {
    return Pattern::chars(flags_.ignore_case ? in_any_case(set) : std::move(set));
}

Pattern PatternParser::choice() {
    if (++depth_ > MOST_NESTED_GROUPS) {
        fail_at(position_, "groups are nested more than " + std::to_string(MOST_NESTED_GROUPS) + " deep");
    }
    std::vector<Pattern> alternatives;
    do {
        alternatives.push_back(sequence());
    } while (skip("|"));
    depth_--;
    return Pattern::list(Pattern::Kind::CHOICE, std::move(alternatives));
}

Pattern PatternParser::sequence() {
    std::vector<Pattern> items;
    while (!at_end() && !sees("|") && !sees(")")) {
        const size_t start = position_;
        Pattern      one   = item();
        items.push_back(quantified(std::move(one), start));
    }
    return Pattern::list(Pattern::Kind::SEQUENCE, std::move(items));
}

Pattern PatternParser::item() {
    const size_t   start = position_;
    const uint32_t c     = text_[position_++];
    switch (c) {
    case '(':
        return group();
    case '[':
        return Pattern::chars(bracket_class());
    case '\\':
        return escape();
    case '.':
        return Pattern::chars(flags_.dot_all ? CharSet::all() : complement(line_ends(syntax_)));
    case '^':
        return start_of_line();
    case '$':
        return end_of_text();
    case '*':
    case '+':
    case '?':
        fail_at(start, "nothing to repeat");
    case '{': {
        uint32_t least, most;
        position_ = start;
        if (quantifier(least, most)) {
            fail_at(start, "nothing to repeat");
        }
        position_ = start + 1;
        return one_of(CharSet::of({{c, c}}));
    }
    default:
        return one_of(CharSet::of({{c, c}}));
    }
}

Pattern PatternParser::start_of_line() {
    Pattern start = Pattern::assertion(Pattern::Kind::START);
    if (!flags_.multiline) {
        return start;
    }
    std::vector<Pattern> alternatives;
    alternatives.push_back(std::move(start));
    alternatives.push_back(Pattern::look(Pattern::Kind::LOOK_BEHIND, Pattern::chars(line_ends(syntax_)), false));
    return Pattern::list(Pattern::Kind::CHOICE, std::move(alternatives));
}

// Python's `$` also matches before a line feed at the end.
Pattern PatternParser::end_of_text() {
    std::vector<Pattern> alternatives;
    alternatives.push_back(Pattern::assertion(Pattern::Kind::END));
    if (flags_.multiline) {
        alternatives.push_back(Pattern::look(Pattern::Kind::LOOK_AHEAD, Pattern::chars(line_ends(syntax_)), false));
    } else if (is_python()) {
        std::vector<Pattern> last_line;
        last_line.push_back(Pattern::chars(line_ends(syntax_)));
        last_line.push_back(Pattern::assertion(Pattern::Kind::END));
        alternatives.push_back(Pattern::look(Pattern::Kind::LOOK_AHEAD,
                                             Pattern::list(Pattern::Kind::SEQUENCE, std::move(last_line)), false));
    }
    return Pattern::list(Pattern::Kind::CHOICE, std::move(alternatives));
}

Pattern PatternParser::quantified(Pattern one, size_t start) {
    uint32_t     least, most;
    const size_t before = position_;
    if (at_end() || !quantifier(least, most)) {
        return one;
    }
    if (text_[start] == '^' || text_[start] == '$' || (text_[start] == '\\' && one.has_assertions)) {
        fail_at(before, "nothing to repeat: an anchor matches no character");
    }
    if (least > most) {
        fail_at(before, "the least number of times is above the most");
    }
    if (!skip("?") && is_python() && sees("+")) {  // lazy ones match the same texts
        fail_at(position_, "possessive quantifiers are not supported");
    }
    const size_t after = position_;
    uint32_t     least_again, most_again;
    if (!at_end() && quantifier(least_again, most_again)) {
        fail_at(after, "a repetition is repeated: put it in a group");
    }
    return Pattern::repeat(std::move(one), least, most);
}

// One of * + ? {n} {n,} {n,m}. What is none is left where it is.
bool PatternParser::quantifier(uint32_t & least, uint32_t & most) {
    least = 0;
    most  = UNBOUNDED;
    if (skip("*")) {
        return true;
    }
    if (skip("+")) {
        least = 1;
        return true;
    }
    if (skip("?")) {
        most = 1;
        return true;
    }
    const size_t start = position_;
    if (skip("{") && counts(least, most) && skip("}")) {
        return true;
    }
    position_ = start;
    return false;
}

bool PatternParser::counts(uint32_t & least, uint32_t & most) {
    least = 0;
    most  = UNBOUNDED;
    if (!number(least) && !(is_python() && sees(","))) {
        return false;
    }
    if (!skip(",")) {
        most = least;
    } else if (!sees("}")) {
        return number(most);
    }
    return true;
}

bool PatternParser::number(uint32_t & value) {
    const size_t start = position_;
    uint64_t     sum   = 0;
    for (; !at_end() && is_digit_char(text_[position_]); position_++) {
        sum = std::min<uint64_t>(sum * 10 + (text_[position_] - '0'), UNBOUNDED - 1);
    }
    if (position_ > start) {
        value = static_cast<uint32_t>(sum);
    }
    return position_ > start;
}

Pattern parse_pattern(const std::string & pattern, RegexSyntax syntax) {
    return PatternParser(pattern, syntax).parse();
}

}  // namespace pyg
