#include "sampling/grammar/triggers/syntax.hpp"

#include "boundary/guard.hpp"

#include <cctype>
#include <cstring>

namespace {

using pyg::ByteSet;
using pyg::fail;
using pyg::TriggerNode;
using pyg::TriggerStep;

constexpr uint32_t MAX_DEPTH  = 100;
constexpr uint32_t MAX_GROUPS = 64;
constexpr uint32_t MAX_TIMES  = 1000;

template <class Test>
ByteSet bytes_that(Test && test) {
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

// Also between brackets. False if the letter is not one of a class.
bool class_of(char letter, ByteSet & bytes) {
    switch (letter) {
    case 'd':
        bytes = bytes_that(is_digit);
        return true;
    case 'D':
        bytes = ~bytes_that(is_digit);
        return true;
    case 's':
        bytes = bytes_that(is_space);
        return true;
    case 'S':
        bytes = ~bytes_that(is_space);
        return true;
    case 'w':
        bytes = bytes_that(is_word);
        return true;
    case 'W':
        bytes = ~bytes_that(is_word);
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

    pyg::TriggerSyntax parse() {
        TriggerNode root = choice(0);
        if (!at_end()) {
            refuse("a ) without a (");
        }
        return {std::move(root), n_groups_};
    }

  private:
    [[noreturn]] void refuse(const char * reason) const {
        throw fail(PYG_ERR_GRAMMAR,
                   "the trigger pattern \"%.100s\" is not a valid regular expression: %s at its byte %zu",
                   pattern_.c_str(), reason, at_);
    }

    bool at_end() const { return at_ == pattern_.size(); }
    char peek() const { return at_end() ? '\0' : pattern_[at_]; }

    char take() {
        if (at_end()) {
            refuse("an unexpected end");
        }
        return pattern_[at_++];
    }

    bool take_if(const char * text) {
        const size_t n     = std::strlen(text);
        const bool   found = pattern_.compare(at_, n, text) == 0;
        at_ += found ? n : 0;
        return found;
    }

    TriggerNode choice(uint32_t depth) {
        if (depth > MAX_DEPTH) {
            refuse("parentheses nested too deeply");
        }
        TriggerNode node;
        node.kind = TriggerNode::CHOICE;
        do {
            node.parts.push_back(sequence(depth));
        } while (take_if("|"));
        return node.parts.size() == 1 ? std::move(node.parts[0]) : node;
    }

    TriggerNode sequence(uint32_t depth) {
        TriggerNode node;
        node.kind = TriggerNode::SEQUENCE;
        while (!at_end() && peek() != '|' && peek() != ')') {
            node.parts.push_back(repeated(part(depth)));
        }
        return node;
    }

    TriggerNode repeated(TriggerNode part) {
        uint32_t least = 0, most = 0;
        if (!times(least, most)) {
            return part;
        }
        if (part.kind == TriggerNode::ASSERTION || part.kind == TriggerNode::LOOK) {
            refuse("nothing to repeat");
        }
        TriggerNode node;
        node.kind   = TriggerNode::REPEAT;
        node.least  = least;
        node.most   = most;
        node.greedy = !take_if("?");
        node.parts.push_back(std::move(part));
        if (std::strchr("*+?{", peek()) && !at_end()) {
            refuse("two repetitions of the same");
        }
        return node;
    }

    bool times(uint32_t & least, uint32_t & most) {
        if (take_if("*")) {
            most = pyg::WITHOUT_END;
        } else if (take_if("+")) {
            least = 1;
            most  = pyg::WITHOUT_END;
        } else if (take_if("?")) {
            most = 1;
        } else if (take_if("{")) {
            least = number();
            most  = !take_if(",") ? least : peek() == '}' ? pyg::WITHOUT_END : number();
            if (!take_if("}") || most < least) {
                refuse("an invalid number of repetitions");
            }
        } else {
            return false;
        }
        return true;
    }

    uint32_t number() {
        uint32_t value = 0;
        if (!is_digit(static_cast<unsigned char>(peek()))) {
            refuse("a number is missing");
        }
        while (is_digit(static_cast<unsigned char>(peek()))) {
            value = value * 10 + static_cast<uint32_t>(take() - '0');
            if (value > MAX_TIMES) {
                refuse("too many repetitions");
            }
        }
        return value;
    }

    TriggerNode part(uint32_t depth) {
        switch (const char letter = take()) {
        case '^':
            return assertion(TriggerStep::TEXT_BEGIN);
        case '$':
            return assertion(TriggerStep::TEXT_END);
        case '.':
            return bytes(any_but_line_ends());
        case '[':
            return bytes(brackets());
        case '(':
            return group(depth);
        case '\\':
            return escaped();
        case '*':
        case '+':
        case '?':
        case '{':
            refuse("nothing to repeat");
        default:
            return bytes(one(static_cast<unsigned char>(letter)));
        }
    }

    TriggerNode group(uint32_t depth) {
        TriggerNode node;
        if (take_if("?=") || take_if("?!")) {
            node.kind      = TriggerNode::LOOK;
            node.assertion = pattern_[at_ - 1] == '=' ? TriggerStep::AHEAD : TriggerStep::NOT_AHEAD;
        } else {
            node.kind = TriggerNode::GROUP;
            if (!take_if("?:")) {
                node.group = ++n_groups_;
            }
        }
        if (n_groups_ > MAX_GROUPS) {
            refuse("too many groups");
        }
        node.parts.push_back(choice(depth + 1));
        if (!take_if(")")) {
            refuse("a ( that is never closed");
        }
        return node;
    }

    TriggerNode escaped() {
        if (take_if("b")) {
            return assertion(TriggerStep::WORD_EDGE);
        }
        if (take_if("B")) {
            return assertion(TriggerStep::NO_WORD_EDGE);
        }
        ByteSet set;
        if (class_of(peek(), set) && !at_end()) {
            at_++;
            return bytes(set);
        }
        if (std::strchr("123456789", peek()) && !at_end()) {
            refuse("a reference to a group, which is not supported,");
        }
        return bytes(one(escaped_byte()));
    }

    // After a backslash, also between brackets.
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
            refuse("an unknown escape");
        }
        return static_cast<unsigned char>(letter);
    }

    unsigned char hexadecimal(int n_digits) {
        unsigned value = 0;
        for (int i = 0; i < n_digits; i++) {
            const char digit = take();
            if (!std::isxdigit(static_cast<unsigned char>(digit))) {
                refuse("an invalid escape");
            }
            value = value * 16 + static_cast<unsigned>(std::stoi(std::string(1, digit), nullptr, 16));
        }
        if (value > 0x7F) {
            refuse("an escape beyond ASCII: write the character itself, which is not");
        }
        return static_cast<unsigned char>(value);
    }

    ByteSet brackets() {
        const bool inverted = take_if("^");
        ByteSet    set;
        while (!take_if("]")) {
            ByteSet    piece;
            const bool is_one = bracket_piece(piece);
            const auto first  = lowest(piece);
            const bool ranges = is_one && peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
            if (ranges) {
                at_++;
                ByteSet end;
                if (!bracket_piece(end) || lowest(end) < first) {
                    refuse("an invalid range");
                }
                piece = bytes_that([&](int byte) { return byte >= first && byte <= lowest(end); });
            }
            set |= piece;
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

    // True for a single byte, which may begin or end a range.
    bool bracket_piece(ByteSet & set) {
        if (take_if("[:")) {
            set = named_class();
            return false;
        }
        if (pattern_.compare(at_, 2, "[.") == 0 || pattern_.compare(at_, 2, "[=") == 0) {
            refuse("a collating element, which is not supported,");
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
                return bytes_that([&](int byte) { return is_ascii(byte) && known.test(byte); });
            }
        }
        refuse("an unknown class");
    }

    static TriggerNode bytes(const ByteSet & set) {
        TriggerNode node;
        node.kind  = TriggerNode::BYTES;
        node.bytes = set;
        return node;
    }

    static TriggerNode assertion(TriggerStep::Kind kind) {
        TriggerNode node;
        node.kind      = TriggerNode::ASSERTION;
        node.assertion = kind;
        return node;
    }

    const std::string & pattern_;
    size_t              at_       = 0;
    uint32_t            n_groups_ = 0;
};

}  // namespace

pyg::TriggerSyntax pyg::trigger_syntax(const std::string & pattern) { return Parser(pattern).parse(); }
