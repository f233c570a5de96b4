#include "sampling/grammar/triggers/regex.hpp"

#include "boundary/guard.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

namespace {

using pyg::ByteSet;
using pyg::fail;
using pyg::RegexInstruction;

constexpr uint32_t MAX_DEPTH     = 100;
constexpr uint32_t MAX_GROUPS    = 64;
constexpr uint32_t MAX_COUNT     = 1000;  // of a repetition
constexpr size_t   MAX_PROGRAM   = 4000;  // instructions, each of which may run for each byte of a text
constexpr uint32_t MAX_LOOKAHEAD = 1000;  // bytes of a lookahead, which may run at each byte of a text
constexpr uint32_t UNBOUNDED     = UINT32_MAX;

// The program of a part of the expression. `next` and `other` are relative to the instruction, so that fragments can be
// concatenated and repeated.
struct Fragment {
    std::vector<RegexInstruction> code;
    uint32_t                      max_bytes     = 0;  // the most bytes it can match, up to UNBOUNDED
    bool                          is_repeatable = true;

    uint32_t size() const { return static_cast<uint32_t>(code.size()); }
};

uint32_t saturated(uint64_t n_bytes) { return static_cast<uint32_t>(std::min<uint64_t>(n_bytes, UNBOUNDED)); }

void append(std::vector<RegexInstruction> & code, const std::vector<RegexInstruction> & more) {
    code.insert(code.end(), more.begin(), more.end());
}

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

// Character class of an escape, also in brackets: upper-case letters mean the opposite. Return false if the letter is
// not one.
bool class_of(char letter, ByteSet & bytes) {
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (lower != 'd' && lower != 's' && lower != 'w') {
        return false;
    }
    bytes = bytes_where(lower == 'd' ? is_digit : lower == 's' ? is_space : is_word);
    bytes = letter == lower ? bytes : ~bytes;
    return true;
}

const std::pair<const char *, int (*)(int)> NAMED_CLASSES[] = {
    {"alnum", std::isalnum}, {"alpha", std::isalpha}, {"blank", std::isblank}, {"cntrl", std::iscntrl},
    {"digit", std::isdigit}, {"graph", std::isgraph}, {"lower", std::islower}, {"print", std::isprint},
    {"punct", std::ispunct}, {"space", std::isspace}, {"upper", std::isupper}, {"xdigit", std::isxdigit}};

// Recursive-descent parser that emits the program directly.
class Compiler {
  public:
    explicit Compiler(const std::string & pattern) : pattern_(pattern) {}

    pyg::RegexProgram compile() {
        Fragment whole = choice(0);
        if (!at_end()) {
            fail_at("a ) without a (");
        }
        whole.code.push_back({RegexInstruction::MATCH});
        for (uint32_t i = 0; i < whole.size(); i++) {
            whole.code[i].next += i;
            whole.code[i].other += i;
        }
        return {std::move(whole.code), n_groups_};
    }

  private:
    [[noreturn]] void fail_at(const char * reason) const {
        throw fail(PYG_ERR_GRAMMAR,
                   "the trigger pattern \"%.100s\" is not a valid regular expression: %s at its byte %zu",
                   pattern_.c_str(), reason, at_);
    }

    void require_size(size_t n_instructions) const {
        if (n_instructions >= MAX_PROGRAM) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" is too long, or repeats too much",
                       pattern_.c_str());
        }
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

    // Alternatives, each tried before those after it.
    Fragment choice(uint32_t depth) {
        if (depth > MAX_DEPTH) {
            fail_at("parentheses nested too deeply");
        }
        Fragment              whole = sequence(depth);
        std::vector<uint32_t> jumps;
        uint32_t              last = 0;  // start of the last alternative so far
        while (take_if("|")) {
            const Fragment next = sequence(depth);
            require_size(whole.size() + next.size() + 2);
            whole.code.insert(whole.code.begin() + last, {RegexInstruction::SPLIT, 1, whole.size() - last + 2});
            jumps.push_back(whole.size());
            whole.code.push_back({RegexInstruction::JUMP});
            last = whole.size();
            append(whole.code, next.code);
            whole.max_bytes     = std::max(whole.max_bytes, next.max_bytes);
            whole.is_repeatable = true;
        }
        for (const uint32_t jump : jumps) {
            whole.code[jump].next = whole.size() - jump;
        }
        return whole;
    }

    Fragment sequence(uint32_t depth) {
        Fragment whole;
        while (!at_end() && peek() != '|' && peek() != ')') {
            const Fragment next = repeated(atom(depth));
            require_size(whole.size() + next.size());
            append(whole.code, next.code);
            whole.max_bytes = saturated(uint64_t{whole.max_bytes} + next.max_bytes);
        }
        return whole;
    }

    Fragment repeated(Fragment atom) {
        uint32_t min_count = 0, max_count = 0;
        if (!quantifier(min_count, max_count)) {
            return atom;
        }
        if (!atom.is_repeatable) {
            fail_at("nothing to repeat");
        }
        const bool greedy = !take_if("?");
        if (std::strchr("*+?{", peek()) && !at_end()) {
            fail_at("two quantifiers in a row");
        }
        const bool     is_unbounded = max_count == UNBOUNDED;
        const uint32_t n_optional = is_unbounded ? 0 : max_count - min_count, n = atom.size();
        require_size(size_t{min_count} * n + size_t{n_optional} * (n + 1) + (is_unbounded ? n + 2 : 0));

        Fragment all;
        all.max_bytes = saturated(uint64_t{atom.max_bytes} * max_count);
        // Continues with the atom, or `exit` instructions later; a lazy repetition prefers the exit.
        const auto add_split = [&](uint32_t exit) {
            all.code.push_back({RegexInstruction::SPLIT, greedy ? 1 : exit, greedy ? exit : 1});
        };
        for (uint32_t i = 0; i < min_count; i++) {
            append(all.code, atom.code);
        }
        for (uint32_t i = n_optional; i > 0; i--) {
            add_split(i * (n + 1));
            append(all.code, atom.code);
        }
        if (is_unbounded) {
            add_split(n + 2);
            append(all.code, atom.code);
            all.code.push_back({RegexInstruction::JUMP, -(n + 1)});
        }
        return all;
    }

    bool quantifier(uint32_t & min_count, uint32_t & max_count) {
        if (take_if("*")) {
            max_count = UNBOUNDED;
        } else if (take_if("+")) {
            min_count = 1;
            max_count = UNBOUNDED;
        } else if (take_if("?")) {
            max_count = 1;
        } else if (take_if("{")) {
            min_count = number();
            max_count = !take_if(",") ? min_count : peek() == '}' ? UNBOUNDED : number();
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
            if (value > MAX_COUNT) {
                fail_at("too many repetitions");
            }
        }
        return value;
    }

    Fragment atom(uint32_t depth) {
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

    Fragment group(uint32_t depth) {
        const bool is_lookahead = take_if("?=") || take_if("?!");
        const bool is_positive  = is_lookahead && pattern_[at_ - 1] == '=';
        const bool is_captured  = !is_lookahead && !take_if("?:");
        if (is_captured && ++n_groups_ > MAX_GROUPS) {
            fail_at("too many groups");
        }
        const uint32_t slot = 2 * n_groups_;
        if (is_lookahead && in_lookahead_) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" looks ahead within a lookahead",
                       pattern_.c_str());
        }
        in_lookahead_ = in_lookahead_ || is_lookahead;
        Fragment body = choice(depth + 1);
        in_lookahead_ = in_lookahead_ && !is_lookahead;
        if (!take_if(")")) {
            fail_at("a ( that is never closed");
        }
        body.is_repeatable = true;
        if (is_lookahead) {
            return lookahead(is_positive, std::move(body));
        }
        return is_captured ? captured(slot, std::move(body)) : body;
    }

    static Fragment captured(uint32_t slot, Fragment body) {
        RegexInstruction save{RegexInstruction::SAVE};
        save.slot = slot;
        body.code.insert(body.code.begin(), save);
        save.slot = slot + 1;
        body.code.push_back(save);
        return body;
    }

    Fragment lookahead(bool is_positive, Fragment body) const {
        if (body.max_bytes > MAX_LOOKAHEAD) {
            throw fail(PYG_ERR_GRAMMAR, "the trigger pattern \"%.100s\" looks ahead further than %u bytes",
                       pattern_.c_str(), MAX_LOOKAHEAD);
        }
        RegexInstruction look{is_positive ? RegexInstruction::LOOKAHEAD : RegexInstruction::NEGATIVE_LOOKAHEAD,
                              body.size() + 2, 1};
        look.max_bytes = body.max_bytes;
        body.code.insert(body.code.begin(), look);
        body.code.push_back({RegexInstruction::MATCH});
        body.max_bytes     = 0;
        body.is_repeatable = false;
        return body;
    }

    Fragment escape() {
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
        constexpr std::string_view LETTERS = "0fnrtv";
        constexpr unsigned char    BYTES[] = {'\0', '\f', '\n', '\r', '\t', '\v'};
        const char                 letter  = take();
        if (const size_t known = LETTERS.find(letter); known != LETTERS.npos) {
            return BYTES[known];
        }
        if (letter == 'x' || letter == 'u') {
            return hexadecimal(letter == 'x' ? 2 : 4);
        }
        if (letter == 'c') {
            return static_cast<unsigned char>(take() % 32);
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
        for (const auto & known : NAMED_CLASSES) {
            if (take_if((std::string(known.first) + ":]").c_str())) {
                return bytes_where([&](int byte) { return is_ascii(byte) && known.second(byte); });
            }
        }
        fail_at("an unknown class");
    }

    static Fragment bytes(const ByteSet & set) {
        Fragment one{{{RegexInstruction::BYTE}}, 1};
        one.code[0].bytes = set;
        return one;
    }

    static Fragment assertion(RegexInstruction::Kind kind) { return {{{kind}}, 0, false}; }

    const std::string & pattern_;
    size_t              at_           = 0;
    uint32_t            n_groups_     = 0;
    bool                in_lookahead_ = false;
};

}  // namespace

pyg::RegexProgram pyg::compile_regex(const std::string & pattern) { return Compiler(pattern).compile(); }
