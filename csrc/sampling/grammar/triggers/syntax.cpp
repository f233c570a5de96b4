#include "sampling/grammar/triggers/syntax.hpp"

#include "boundary/guard.hpp"

#include <cctype>
#include <cstring>

namespace {

using pyg::ByteSet;
using pyg::fail;
using pyg::RegexInstruction;
using pyg::RegexNode;

constexpr uint32_t MAX_DEPTH  = 100;
constexpr uint32_t MAX_GROUPS = 64;
constexpr uint32_t MAX_TIMES  = 1000;

template <class Test>
ByteSet bytes_where(Test && test) {
    ByteSet bytes;
    for (int byte = 0; byte < 256; byte++) {
        bytes[static_cast<size_t>(byte)] = test(byte);
    }
    return bytes;
}

bool is_ascii(int byte) { return byte < 128; }
bool is_word(int byte) { return is_ascii(byte) && (std::isalnum(byte) || byte == '_'); }
bool is_digit(int byte) { return is_ascii(byte) && std::isdigit(byte); }
bool is_space(int byte) { return is_ascii(byte) && std::isspace(byte); }

ByteSet one(unsigned char byte) { return ByteSet().set(byte); }

ByteSet any_but_line_ends() { return ~(one('\n') | one('\r')); }

// Character class of an escape, also in brackets. Return false if the letter is not one.
bool class_of(char letter, ByteSet & bytes) {
    switch (letter) {
    case 'd':
        bytes = bytes_where(is_digit);
        return true;
    case 'D':
        bytes = ~bytes_where(is_digit);
        return true;
    case 's':
        bytes = bytes_where(is_space);
        return true;
    case 'S':
        bytes = ~bytes_where(is_space);
        return true;
    case 'w':
        bytes = bytes_where(is_word);
        return true;
    case 'W':
        bytes = ~bytes_where(is_word);
        return true;
    default:
        return false;
    }
}

struct NamedClass {
    const char * name;
    int (*test)(int);
};

constexpr NamedClass NAMED_CLASSES[] = {{"alnum", std::isalnum}, {"alpha", std::isalpha}, {"blank", std::isblank},
                                        {"cntrl", std::iscntrl}, {"digit", std::isdigit}, {"graph", std::isgraph},
                                        {"lower", std::islower}, {"print", std::isprint}, {"punct", std::ispunct},
                                        {"space", std::isspace}, {"upper", std::isupper}, {"xdigit", std::isxdigit}};

class Parser {
  public:
    explicit Parser(const std::string & pattern) : pattern_(pattern) {}

    pyg::RegexSyntax parse() {
        RegexNode root = choice(0);
        if (!at_end()) {
            fail_at("a ) without a (");
        }
        return {std::move(root), n_groups_};
    }

  private:
    [[noreturn]] void fail_at(const char * reason) const {
        throw fail(PYG_ERR_GRAMMAR,
                   "the trigger pattern \"%.100s\" is not a valid regular expression: %s at its byte %zu",
                   pattern_.c_str(), reason, at_);
    }

    bool at_end() const { return at_ == pattern_.size(); }
    char peek() const { return at_end() ? '\0' : pattern_[at_]; }

    char take() {
        if (at_end()) {
            fail_at("an unexpected end");
        }
        return pattern_[at_++];
    }

    bool take_if(const char * text) {
        const size_t n     = std::strlen(text);
        const bool   found = pattern_.compare(at_, n, text) == 0;
        at_ += found ? n : 0;
        return found;
    }

    RegexNode choice(uint32_t depth) {
        if (depth > MAX_DEPTH) {
            fail_at("parentheses nested too deeply");
        }
        RegexNode node;
        node.kind = RegexNode::CHOICE;
        do {
            node.children.push_back(sequence(depth));
        } while (take_if("|"));
        return node.children.size() == 1 ? std::move(node.children[0]) : node;
    }

    RegexNode sequence(uint32_t depth) {
        RegexNode node;
        node.kind = RegexNode::SEQUENCE;
        while (!at_end() && peek() != '|' && peek() != ')') {
            node.children.push_back(repeated(atom(depth)));
        }
        return node;
    }

    RegexNode repeated(RegexNode atom) {
        uint32_t min_count = 0, max_count = 0;
        if (!quantifier(min_count, max_count)) {
            return atom;
        }
        if (atom.kind == RegexNode::ASSERTION || atom.kind == RegexNode::LOOKAHEAD) {
            fail_at("nothing to repeat");
        }
        RegexNode node;
        node.kind      = RegexNode::REPEAT;
        node.min_count = min_count;
        node.max_count = max_count;
        node.greedy    = !take_if("?");
        node.children.push_back(std::move(atom));
        if (std::strchr("*+?{", peek()) && !at_end()) {
            fail_at("two quantifiers in a row");
        }
        return node;
    }

    bool quantifier(uint32_t & min_count, uint32_t & max_count) {
        if (take_if("*")) {
            max_count = pyg::UNBOUNDED;
        } else if (take_if("+")) {
            min_count = 1;
            max_count = pyg::UNBOUNDED;
        } else if (take_if("?")) {
            max_count = 1;
        } else if (take_if("{")) {
            min_count = number();
            max_count = !take_if(",") ? min_count : peek() == '}' ? pyg::UNBOUNDED : number();
            if (!take_if("}") || max_count < min_count) {
                fail_at("an invalid number of repetitions");
            }
        } else {
            return false;
        }
        return true;
    }

    uint32_t number() {
        uint32_t value = 0;
        if (!is_digit(static_cast<unsigned char>(peek()))) {
            fail_at("a number is missing");
        }
        while (is_digit(static_cast<unsigned char>(peek()))) {
            value = value * 10 + static_cast<uint32_t>(take() - '0');
            if (value > MAX_TIMES) {
                fail_at("too many repetitions");
            }
        }
        return value;
    }

    RegexNode atom(uint32_t depth) {
        switch (const char letter = take()) {
        case '^':
            return assertion(RegexInstruction::TEXT_BEGIN);
        case '$':
            return assertion(RegexInstruction::TEXT_END);
        case '.':
            return bytes(any_but_line_ends());
        case '[':
            return bytes(brackets());
        case '(':
            return group(depth);
        case '\\':
            return escape();
        case '*':
        case '+':
        case '?':
        case '{':
            fail_at("nothing to repeat");
        default:
            return bytes(one(static_cast<unsigned char>(letter)));
        }
    }

    RegexNode group(uint32_t depth) {
        RegexNode node;
        if (take_if("?=") || take_if("?!")) {
            node.kind = RegexNode::LOOKAHEAD;
            node.assertion =
                pattern_[at_ - 1] == '=' ? RegexInstruction::LOOKAHEAD : RegexInstruction::NEGATIVE_LOOKAHEAD;
        } else {
            node.kind = RegexNode::GROUP;
            if (!take_if("?:")) {
                node.group = ++n_groups_;
            }
        }
        if (n_groups_ > MAX_GROUPS) {
            fail_at("too many groups");
        }
        node.children.push_back(choice(depth + 1));
        if (!take_if(")")) {
            fail_at("a ( that is never closed");
        }
        return node;
    }

    RegexNode escape() {
        if (take_if("b")) {
            return assertion(RegexInstruction::WORD_BOUNDARY);
        }
        if (take_if("B")) {
            return assertion(RegexInstruction::NOT_WORD_BOUNDARY);
        }
        ByteSet set;
        if (class_of(peek(), set) && !at_end()) {
            at_++;
            return bytes(set);
        }
        if (std::strchr("123456789", peek()) && !at_end()) {
            fail_at("an unsupported back reference");
        }
        return bytes(one(escaped_byte()));
    }

    // The byte after a backslash, also in brackets.
    unsigned char escaped_byte() {
        const char letter = take();
        switch (letter) {
        case '0':
            return '\0';
        case 'f':
            return '\f';
        case 'n':
            return '\n';
        case 'r':
            return '\r';
        case 't':
            return '\t';
        case 'v':
            return '\v';
        case 'x':
            return hexadecimal(2);
        case 'u':
            return hexadecimal(4);
        case 'c':
            return static_cast<unsigned char>(take() % 32);
        default:
            break;
        }
        if (is_word(static_cast<unsigned char>(letter)) && letter != '_') {
            fail_at("an unknown escape");
        }
        return static_cast<unsigned char>(letter);
    }

    unsigned char hexadecimal(int n_digits) {
        unsigned value = 0;
        for (int i = 0; i < n_digits; i++) {
            const char digit = take();
            if (!std::isxdigit(static_cast<unsigned char>(digit))) {
                fail_at("an invalid escape");
            }
            value = value * 16 + static_cast<unsigned>(std::stoi(std::string(1, digit), nullptr, 16));
        }
        if (value > 0x7F) {
            fail_at("a non-ASCII escape (write the character itself)");
        }
        return static_cast<unsigned char>(value);
    }

    ByteSet brackets() {
        const bool inverted = take_if("^");
        ByteSet    set;
        while (!take_if("]")) {
            ByteSet    item;
            const bool is_one = bracket_item(item);
            const auto first  = lowest(item);
            const bool ranges = is_one && peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
            if (ranges) {
                at_++;
                ByteSet end;
                if (!bracket_item(end) || lowest(end) < first) {
                    fail_at("an invalid range");
                }
                item = bytes_where([&](int byte) { return byte >= first && byte <= lowest(end); });
            }
            set |= item;
        }
        return inverted ? ~set : set;
    }

    static int lowest(const ByteSet & set) {
        int byte = 0;
        while (byte < 256 && !set[static_cast<size_t>(byte)]) {
            byte++;
        }
        return byte;
    }

    // Return true for a single byte, which may start or end a range.
    bool bracket_item(ByteSet & set) {
        if (take_if("[:")) {
            set = named_class();
            return false;
        }
        if (pattern_.compare(at_, 2, "[.") == 0 || pattern_.compare(at_, 2, "[=") == 0) {
            fail_at("an unsupported collating element");
        }
        const char letter = take();
        if (letter != '\\') {
            set = one(static_cast<unsigned char>(letter));
            return true;
        }
        if (class_of(peek(), set) && !at_end()) {
            at_++;
            return false;
        }
        set = one(take_if("b") ? static_cast<unsigned char>('\b') : escaped_byte());
        return true;
    }

    ByteSet named_class() {
        for (const NamedClass & known : NAMED_CLASSES) {
            if (take_if((std::string(known.name) + ":]").c_str())) {
                return bytes_where([&](int byte) { return is_ascii(byte) && known.test(byte); });
            }
        }
        fail_at("an unknown class");
    }

    static RegexNode bytes(const ByteSet & set) {
        RegexNode node;
        node.kind  = RegexNode::BYTES;
        node.bytes = set;
        return node;
    }

    static RegexNode assertion(RegexInstruction::Kind kind) {
        RegexNode node;
        node.kind      = RegexNode::ASSERTION;
        node.assertion = kind;
        return node;
    }

    const std::string & pattern_;
    size_t              at_       = 0;
    uint32_t            n_groups_ = 0;
};

}  // namespace

pyg::RegexSyntax pyg::parse_regex(const std::string & pattern) { return Parser(pattern).parse(); }
