#include "schema/keywords/json_value.hpp"

#include "boundary/guard.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace pyg {

namespace {

constexpr size_t MAX_NESTING         = 400;  // arrays and objects inside each other
constexpr size_t SEARCHED_ONE_BY_ONE = 12;   // members
constexpr size_t EXCERPT             = 40;
constexpr size_t LONGEST_NAME        = 200;  // of a member, in messages

void append_utf8(std::string & text, uint32_t code_point) {
    if (code_point < 0x80) {
        text += static_cast<char>(code_point);
    } else if (code_point < 0x800) {
        text += static_cast<char>(0xC0 | code_point >> 6);
        text += static_cast<char>(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        text += static_cast<char>(0xE0 | code_point >> 12);
        text += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
        text += static_cast<char>(0x80 | (code_point & 0x3F));
    } else {
        text += static_cast<char>(0xF0 | code_point >> 18);
        text += static_cast<char>(0x80 | (code_point >> 12 & 0x3F));
        text += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
        text += static_cast<char>(0x80 | (code_point & 0x3F));
    }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Cut between characters, not inside of one.
std::string cut(const std::string & text, size_t most) {
    if (text.size() <= most) {
        return text;
    }
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) {
        most--;
    }
    return text.substr(0, most);
}

std::string pointer_token(const std::string & name) {
    std::string       token;
    const bool        is_long = name.size() > LONGEST_NAME;
    const std::string tail    = is_long ? name.substr(name.size() - 20) : "";
    for (char c : is_long ? cut(name, LONGEST_NAME / 2) + " ... " : name) {
        token += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    return token + (is_long && (static_cast<unsigned char>(tail[0]) & 0x80) == 0 ? tail : "");
}

void write(const JsonValue & value, std::string & out) {
    if (out.size() > EXCERPT) {
        return;
    }
    switch (value.kind) {
    case JsonKind::NIL:
        out += "null";
        return;
    case JsonKind::NO:
        out += "false";
        return;
    case JsonKind::YES:
        out += "true";
        return;
    case JsonKind::NUMBER:
        out += value.text;
        return;
    case JsonKind::STRING:
        out += '"' + value.text + '"';
        return;
    case JsonKind::ARRAY:
    case JsonKind::OBJECT:
        break;
    }
    out += value.is_array() ? '[' : '{';
    for (size_t i = 0; i < value.items.size(); i++) {
        out += i > 0 ? ", " : "";
        out += value.is_object() ? '"' + value.names[i] + "\": " : "";
        write(value.items[i], out);
    }
    out += value.is_array() ? ']' : '}';
}

}  // namespace

class JsonParser {
  public:
    explicit JsonParser(const std::string & text) : text_(text) {}

    void parse(JsonValue & root) {
        read(root, 0);
        skip_space();
        if (at_ < text_.size()) {
            throw failure("unexpected text after the value");
        }
        adopt(root);
    }

  private:
    const std::string & text_;
    size_t              at_ = 0;

    Failure failure(const char * reason) const {
        const size_t before  = std::min(at_, text_.size());
        const size_t newline = before == 0 ? std::string::npos : text_.rfind('\n', before - 1);
        const auto   line    = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(before), '\n');
        return fail(PYG_ERR_GRAMMAR, "the schema is not valid JSON: %s: line %zu column %zu", reason,
                    static_cast<size_t>(line), before - newline);  // npos + 1 is 0: the first line
    }

    void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

    bool take(char c) {
        skip_space();
        if (peek() != c || at_ >= text_.size()) {
            return false;
        }
        at_++;
        return true;
    }

    void read(JsonValue & value, size_t depth) {
        skip_space();
        if (depth > MAX_NESTING) {
            throw failure("it is nested too deeply");
        }
        const char c = peek();
        if (c == '{') {
            read_object(value, depth);
        } else if (c == '[') {
            read_array(value, depth);
        } else if (c == '"') {
            value.kind = JsonKind::STRING;
            value.text = read_string();
        } else if (c == '-' || is_digit(c)) {
            read_number(value);
        } else if (!read_word(value, "null", JsonKind::NIL) && !read_word(value, "true", JsonKind::YES) &&
                   !read_word(value, "false", JsonKind::NO)) {
            throw failure("expected a value");
        }
    }

    bool read_word(JsonValue & value, const char * word, JsonKind kind) {
        if (text_.compare(at_, std::strlen(word), word) != 0) {
            return false;
        }
        at_ += std::strlen(word);
        value.kind = kind;
        return true;
    }

    void digits() {
        if (!is_digit(peek())) {
            throw failure("expected a digit");
        }
        while (is_digit(peek())) {
            at_++;
        }
    }

    void read_number(JsonValue & value) {
        const size_t begin = at_;
        at_ += peek() == '-';
        if (peek() == '0') {
            at_++;
        } else {
            digits();
        }
        if (peek() == '.') {
            at_++;
            digits();
        }
        if (peek() == 'e' || peek() == 'E') {
            at_++;
            at_ += peek() == '+' || peek() == '-';
            digits();
        }
        value.kind = JsonKind::NUMBER;
        value.text = text_.substr(begin, at_ - begin);
    }

    void read_array(JsonValue & value, size_t depth) {
        value.kind = JsonKind::ARRAY;
        at_++;
        if (take(']')) {
            return;
        }
        do {
            value.items.emplace_back();
            read(value.items.back(), depth + 1);
        } while (take(','));
        if (!take(']')) {
            throw failure("expected ',' or ']'");
        }
    }

    void read_object(JsonValue & value, size_t depth) {
        value.kind = JsonKind::OBJECT;
        at_++;
        if (take('}')) {
            return;
        }
        std::unordered_map<std::string, size_t> index;
        do {
            skip_space();
            if (peek() != '"') {
                throw failure("expected a name in double quotes");
            }
            std::string name = read_string();
            if (!take(':')) {
                throw failure("expected ':'");
            }
            JsonValue item;
            read(item, depth + 1);
            const auto [place, is_new] = index.emplace(name, value.items.size());
            if (is_new) {
                value.names.push_back(std::move(name));
                value.items.push_back(std::move(item));
            } else {
                value.items[place->second] = std::move(item);
            }
        } while (take(','));
        if (!take('}')) {
            throw failure("expected ',' or '}'");
        }
    }

    std::string read_string() {
        std::string result;
        at_++;
        while (true) {
            const unsigned char c = static_cast<unsigned char>(peek());
            if (at_ >= text_.size()) {
                throw failure("a string has no end");
            }
            if (c == '"') {
                at_++;
                return result;
            }
            if (c < 0x20) {
                throw failure("a control character in a string");
            }
            if (c == '\\') {
                read_escape(result);
            } else if (c < 0x80) {
                result += static_cast<char>(c);
                at_++;
            } else {
                read_character(result, c);
            }
        }
    }

    // One character of several bytes.
    void read_character(std::string & result, unsigned char first) {
        const size_t n = first >= 0xF0 && first < 0xF5 ? 4 : first >= 0xE0 ? 3 : 2;
        if (first < 0xC2 || first >= 0xF5 || at_ + n > text_.size()) {
            throw failure("the text is not UTF-8");
        }
        uint32_t code_point = first & (0xFF >> (n + 1));
        for (size_t i = 1; i < n; i++) {
            const auto next = static_cast<unsigned char>(text_[at_ + i]);
            if ((next & 0xC0) != 0x80) {
                throw failure("the text is not UTF-8");
            }
            code_point = code_point << 6 | (next & 0x3F);
        }
        if ((n == 3 && code_point < 0x800) || (n == 4 && (code_point < 0x10000 || code_point > 0x10FFFF)) ||
            (code_point >= 0xD800 && code_point < 0xE000)) {
            throw failure("the text is not UTF-8");
        }
        result.append(text_, at_, n);
        at_ += n;
    }

    uint32_t read_hex() {
        uint32_t value = 0;
        for (int i = 0; i < 4; i++, at_++) {
            const char c = peek();
            if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) {
                throw failure("expected four hexadecimal digits");
            }
            value = value << 4 | static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        return value;
    }

    void read_escape(std::string & result) {
        static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
        at_++;
        const char c = peek();
        at_++;
        if (const char * found = c == '\0' ? nullptr : std::strchr(names, c)) {
            result += values[found - names];
            return;
        }
        if (c != 'u') {
            throw failure("an unknown escape in a string");
        }
        uint32_t code_point = read_hex();
        if (code_point >= 0xD800 && code_point < 0xDC00 && text_.compare(at_, 2, "\\u") == 0) {
            at_ += 2;
            const uint32_t low = read_hex();
            if (low < 0xDC00 || low >= 0xE000) {
                throw failure("an unpaired surrogate in a string");
            }
            code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
        } else if (code_point >= 0xD800 && code_point < 0xE000) {
            throw failure("an unpaired surrogate in a string");
        }
        append_utf8(result, code_point);
    }

    // Connect children with their parent, now that none moves any more.
    static void adopt(JsonValue & value) {
        if (value.is_object() && value.names.size() > SEARCHED_ONE_BY_ONE) {
            value.sorted_.resize(value.names.size());
            for (size_t i = 0; i < value.names.size(); i++) {
                value.sorted_[i] = static_cast<uint32_t>(i);
            }
            std::sort(value.sorted_.begin(), value.sorted_.end(),
                      [&](uint32_t a, uint32_t b) { return value.names[a] < value.names[b]; });
        }
        for (JsonValue & item : value.items) {
            item.parent = &value;
            adopt(item);
        }
    }
};

void parse_json(const std::string & text, JsonValue & root) { JsonParser(text).parse(root); }

const JsonValue * JsonValue::find(const std::string & name) const {
    if (sorted_.empty()) {
        const auto found = std::find(names.begin(), names.end(), name);
        return found == names.end() ? nullptr : &items[static_cast<size_t>(found - names.begin())];
    }
    const auto found = std::lower_bound(sorted_.begin(), sorted_.end(), name,
                                        [&](uint32_t i, const std::string & wanted) { return names[i] < wanted; });
    return found == sorted_.end() || names[*found] != name ? nullptr : &items[*found];
}

std::string JsonValue::pointer() const {
    std::vector<std::string> tokens;
    for (const JsonValue * value = this; value->parent != nullptr; value = value->parent) {
        const auto i = static_cast<size_t>(value - value->parent->items.data());
        tokens.push_back(value->parent->is_object() ? pointer_token(value->parent->names[i]) : std::to_string(i));
    }
    std::string result = "#";
    for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
        result += '/' + *token;
    }
    return result;
}

std::string JsonValue::excerpt() const {
    std::string text;
    write(*this, text);
    return cut(text, EXCERPT);
}

}  // namespace pyg
