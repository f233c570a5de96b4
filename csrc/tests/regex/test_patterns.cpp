// Regular expressions against a backtracking matcher: random ones on all short texts; then what the parser accepts,
// refuses and how it says so.
#include "boundary/guard.hpp"
#include "regex/languages.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <functional>
#include <random>

namespace {

using pyg::Language;
using pyg::Languages;
using pyg::RegexSyntax;

// A regular expression as this test understands it.
struct Node {
    enum Kind {
        CHARS,
        SEQUENCE,
        CHOICE,
        REPEAT,
        AHEAD,
        NOT_AHEAD,
        BEHIND,
        NOT_BEHIND,
        START,
        END,
        BOUNDARY,
        INSIDE
    } kind;
    std::string       chars;  // of CHARS: how it is written
    std::string       members;
    std::vector<Node> children;
    uint32_t          least = 0, most = 0;
};

const std::string ALPHABET = "ab-";

Node leaf(Node::Kind kind) { return {kind, "", "", {}, 0, 0}; }

std::string written(const Node & node) {
    const auto inside = [&](const char * before) { return before + written(node.children[0]) + ")"; };
    switch (node.kind) {
    case Node::CHARS:
        return node.chars;
    case Node::SEQUENCE:
    case Node::CHOICE: {
        std::string text = "(?:";
        for (size_t i = 0; i < node.children.size(); i++) {
            text += (i > 0 && node.kind == Node::CHOICE ? "|" : "") + written(node.children[i]);
        }
        return text + ")";
    }
    case Node::REPEAT:
        return inside("(") + "{" + std::to_string(node.least) + "," +
               (node.most == pyg::UNBOUNDED ? "" : std::to_string(node.most)) + "}";
    case Node::AHEAD:
        return inside("(?=");
    case Node::NOT_AHEAD:
        return inside("(?!");
    case Node::BEHIND:
        return inside("(?<=");
    case Node::NOT_BEHIND:
        return inside("(?<!");
    case Node::START:
        return "^";
    case Node::END:
        return "$";
    case Node::BOUNDARY:
        return "\\b";
    default:
        return "\\B";
    }
}

using Next = std::function<bool(size_t)>;

bool matches(const Node & node, const std::string & text, size_t i, const Next & next);

bool matches_from(const Node & node, size_t child, const std::string & text, size_t i, const Next & next) {
    if (child == node.children.size()) {
        return next(i);
    }
    return matches(node.children[child], text, i,
                   [&](size_t k) { return matches_from(node, child + 1, text, k, next); });
}

bool repeats(const Node & node, uint32_t n_done, const std::string & text, size_t i, const Next & next) {
    if (n_done >= node.least && next(i)) {
        return true;
    }
    return n_done < node.most &&
           matches(
               node.children[0], text, i,
               [&](size_t k) { return (k > i || n_done < node.least) && repeats(node, n_done + 1, text, k, next); });
}

bool is_word(const std::string & text, size_t i) { return i < text.size() && text[i] != '-'; }

bool ends_at(const Node & node, const std::string & text, size_t end) {
    for (size_t start = 0; start <= end; start++) {
        if (matches(node, text, start, [&](size_t k) { return k == end; })) {
            return true;
        }
    }
    return false;
}

bool matches(const Node & node, const std::string & text, size_t i, const Next & next) {
    const auto anywhere = [](size_t) { return true; };
    switch (node.kind) {
    case Node::CHARS:
        return i < text.size() && node.members.find(text[i]) != std::string::npos && next(i + 1);
    case Node::SEQUENCE:
        return matches_from(node, 0, text, i, next);
    case Node::CHOICE:
        return std::any_of(node.children.begin(), node.children.end(),
                           [&](const Node & child) { return matches(child, text, i, next); });
    case Node::REPEAT:
        return repeats(node, 0, text, i, next);
    case Node::AHEAD:
        return matches(node.children[0], text, i, anywhere) && next(i);
    case Node::NOT_AHEAD:
        return !matches(node.children[0], text, i, anywhere) && next(i);
    case Node::BEHIND:
        return ends_at(node.children[0], text, i) && next(i);
    case Node::NOT_BEHIND:
        return !ends_at(node.children[0], text, i) && next(i);
    case Node::START:
        return i == 0 && next(i);
    case Node::END:
        return i == text.size() && next(i);
    default: {
        const bool boundary = (i > 0 && is_word(text, i - 1)) != is_word(text, i);
        return boundary == (node.kind == Node::BOUNDARY) && next(i);
    }
    }
}

using Random = std::mt19937;

uint32_t below(Random & random, uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random); }

Node random_chars(Random & random) {
    static const std::vector<std::pair<std::string, std::string>> sets = {
        {"a", "a"}, {"b", "b"}, {"-", "-"}, {"\\w", "ab"}, {".", "ab-"}, {"[^a]", "b-"}, {"[a-b]", "ab"}, {"\\W", "-"}};
    const auto & [chars, members] = sets[below(random, static_cast<uint32_t>(sets.size()))];
    return {Node::CHARS, chars, members, {}, 0, 0};
}

// `behind`: inside a look-behind, where what looks ahead is not supported.
Node random_node(Random & random, int depth, bool behind) {
    if (depth == 0 || below(random, 5) == 0) {
        return random_chars(random);
    }
    const uint32_t choice = below(random, 16);
    Node           node   = leaf(Node::SEQUENCE);
    if (choice < 5 || (behind && choice >= 12)) {
        for (uint32_t i = below(random, 4); i > 0; i--) {
            node.children.push_back(random_node(random, depth - 1, behind));
        }
        return node;
    }
    if (choice < 8) {
        node.kind = Node::CHOICE;
        for (uint32_t i = 1 + below(random, 3); i > 0; i--) {
            node.children.push_back(random_node(random, depth - 1, behind));
        }
        return node;
    }
    if (choice < 11) {
        node.kind  = Node::REPEAT;
        node.least = below(random, 3);
        node.most  = below(random, 2) ? node.least + below(random, 3) : pyg::UNBOUNDED;
        node.children.push_back(random_node(random, depth - 1, behind));
        return node;
    }
    if (choice == 11) {
        return leaf(Node::START);
    }
    if (choice == 12) {
        return leaf(below(random, 2) ? Node::BOUNDARY : Node::INSIDE);
    }
    if (choice == 13) {
        return leaf(Node::END);
    }
    node.kind = static_cast<Node::Kind>(Node::AHEAD + below(random, 4));
    node.children.push_back(random_node(random, depth - 1, node.kind >= Node::BEHIND));
    return node;
}

std::vector<std::string> texts_up_to(size_t length) {
    std::vector<std::string> texts{""};
    for (size_t i = 0; texts[i].size() < length; i++) {
        for (const char c : ALPHABET) {
            texts.push_back(texts[i] + c);
        }
    }
    return texts;
}

void test_random_patterns() {
    const std::vector<std::string> texts = texts_up_to(4);
    Random                         random(3);
    for (int n = 0; n < 4000; n++) {
        const Node        node    = random_node(random, 4, false);
        const std::string pattern = written(node);
        Languages         languages;
        const Language    whole    = languages.regex(pattern, RegexSyntax::ECMASCRIPT, true);
        const Language    anywhere = languages.regex(pattern, RegexSyntax::ECMASCRIPT, false);
        for (const std::string & text : texts) {
            bool found = false;
            for (size_t i = 0; i <= text.size(); i++) {
                found = found || matches(node, text, i, [](size_t) { return true; });
            }
            const bool as_whole = matches(node, text, 0, [&](size_t k) { return k == text.size(); });
            if (languages.contains(whole, text) != as_whole || languages.contains(anywhere, text) != found) {
                std::fprintf(stderr, "%s on \"%s\": expected %d, anywhere %d\n", pattern.c_str(), text.c_str(),
                             as_whole, found);
                std::exit(1);
            }
        }
    }
}

struct Case {
    const char *             pattern;
    std::vector<std::string> matching, others;
};

void check(RegexSyntax syntax, const std::vector<Case> & cases) {
    for (const Case & each : cases) {
        Languages      languages;
        const Language language = languages.regex(each.pattern, syntax, false);
        for (const std::string & text : each.matching) {
            if (!languages.contains(language, text)) {
                std::fprintf(stderr, "%s does not match \"%s\"\n", each.pattern, text.c_str());
                std::exit(1);
            }
        }
        for (const std::string & text : each.others) {
            if (languages.contains(language, text)) {
                std::fprintf(stderr, "%s matches \"%s\"\n", each.pattern, text.c_str());
                std::exit(1);
            }
        }
    }
}

void test_ecmascript() {
    check(RegexSyntax::ECMASCRIPT,
          {
              {"b", {"abc"}, {"", "ac"}},
              {"^(?:a|b$)", {"ax", "b"}, {"bx", "xa"}},
              {"^(a*)*$", {"", "aaa"}, {"b"}},
              {"^(a|)*$", {"", "aaa"}, {"b"}},
              {"^.$", {"x", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"\n", "\r", "\xE2\x80\xA8", "ab"}},
              {"^\\d{2,3}?$", {"12", "123"}, {"1", "1234", "\xDF\x80\xDF\x81"}},
              {"^[\\w-.]+$", {"a-.b"}, {"a b"}},
              {"^[a\\-z]$", {"-", "a", "z"}, {"b"}},
              {"^\\-\\_\\/\\:\\@$", {"-_/:@"}, {}},
              {"^x{$", {"x{"}, {"x"}},
              {"^x{a}{,2}$", {"x{a}{,2}"}, {"x"}},
              {"^]}$", {"]}"}, {}},
              {"^[^]$", {"\n"}, {""}},
              {"[]", {}, {"", "a"}},
              {"^\\x41\\u0042\\u{43}\\cJ\\0$", {std::string("ABC\n\0", 5)}, {}},
              {"^\\uD83D\\uDE00$", {"\xF0\x9F\x98\x80"}, {}},
              {"^\\p{Lu}\\p{Script=Greek}\\P{L}$",
               {"A\xCE\xB1"
                "1"},
               {"a\xCE\xB1"
                "1",
                "AA1"}},
              {"^\\p{ASCII}\\p{Alphabetic}\\p{Any}\\p{Nd}\\p{gc=Zs}$", {"!\xC3\xA9\n7 "}, {"!!!!!"}},
              {"^\\p{scx=Deva}\\p{Letter}$",
               {"\xE0\xA5\xA4"
                "a"},
               {}},
              {"^\\s$", {" ", "\t", "\xC2\xA0", "\xEF\xBB\xBF", "\xE2\x80\xA9"}, {"\xC2\x85", "x"}},
              {"\\bfoo\\b", {"a foo.", "foo"}, {"food", "_foo"}},
              {"^(?!.*--)[a-z-]+$", {"a-b-c"}, {"a--b"}},
              {"^(?=.*[A-Z])(?=.*[0-9]).{4,8}$", {"aB3x"}, {"aBcx", "A1b", "A1bcdefgh"}},
              {"(?<=^|,)x(?=,|$)", {"x", "a,x,b"}, {"ax", "xa"}},
              {"(?<!\\$)\\b[0-9]+\\b", {"costs 5"}, {"$5"}},
              {"^(?<year>[0-9]{4})$", {"2024"}, {"24"}},
              {"^(?i:abc)$", {"aBC"}, {"abd"}},
              {"^(?i:k)$", {"K", "\xE2\x84\xAA"}, {"j"}},
              {"(?:(?!ab).)*c", {"c", "xxc"}, {"x"}},
              {"^(?:(?!end).)*$", {"", "the en"}, {"the end"}},
              {"^((?!foo)[a-z]+,)*$", {"a,b,", ""}, {"a,foo,"}},
          });
}

void test_python() {
    check(RegexSyntax::PYTHON, {
                                   {"^a$", {"a", "a\n"}, {"a\n\n", "b"}},
                                   {"\\Aa\\Z", {"a"}, {"a\n"}},
                                   {"^.$", {"\r", "\xE2\x80\xA8"}, {"\n\n"}},
                                   {"(?i)^stra\\w+", {"STRASSE"}, {"x"}},
                                   {"(?s)^.$", {"\n"}, {}},
                                   {"(?m)^b$", {"a\nb\nc"}, {"ab"}},
                                   {"^(?P<n>x){,2}$", {"", "xx"}, {"xxx"}},
                                   {"(?#comment)^[]a]$", {"]", "a"}, {"b"}},
                                   {"^\\U0001F600\\a$", {"\xF0\x9F\x98\x80\a"}, {}},
                               });
}

void check_refused(const char * pattern, RegexSyntax syntax, const char * reason) {
    Languages languages;
    try {
        languages.regex(pattern, syntax, false);
    } catch (const pyg::Failure & failure) {
        if (failure.code == PYG_ERR_GRAMMAR && failure.message.find(reason) != std::string::npos) {
            return;
        }
        std::fprintf(stderr, "%s: %s\n", pattern, failure.message.c_str());
        std::exit(1);
    }
    std::fprintf(stderr, "%s is not refused\n", pattern);
    std::exit(1);
}

void test_refused() {
    const RegexSyntax ecma = RegexSyntax::ECMASCRIPT, python = RegexSyntax::PYTHON;
    check_refused("(a)\\1", ecma, "character 3: back references");
    check_refused("(?<n>a)\\k<n>", ecma, "back references");
    check_refused("(?P<n>a)(?P=n)", python, "back references");
    check_refused("ab(c", ecma, "character 2: the group does not end");
    check_refused("ab)c", ecma, "character 2: unmatched )");
    check_refused("[ab", ecma, "] is missing");
    check_refused("*a", ecma, "character 0: nothing to repeat");
    check_refused("^*", ecma, "nothing to repeat");
    check_refused("a**", ecma, "character 2: a repetition is repeated");
    check_refused("a{3,2}", ecma, "the least number of times is above the most");
    check_refused("[z-a]", ecma, "ends before it begins");
    check_refused("\\", ecma, "nothing follows the backslash");
    check_refused("\\a", ecma, "unknown escape \\a");
    check_refused("\\p{Klingon}", ecma, "unknown property of characters \"Klingon\"");
    check_refused("\\p{L}", python, "Python's expressions have no \\p");
    check_refused("(?i)abc", ecma, "flags");
    check_refused("(?P<name>x)", ecma, "unknown kind of group");
    check_refused("(?>a)", python, "atomic groups");
    check_refused("a++", python, "possessive");
    check_refused("(a)(?(1)b)", python, "conditional");
    check_refused("(?x)a", python, "flags x and L");
    check_refused("(?<=a(?=b))", ecma, "inside a look-behind");
    check_refused(std::string(100000, '(').c_str(), ecma, "groups are nested more than");
    check_refused("(?:(?=a)[a-z]{1,3}){1,2000}", ecma, "too complex");
}

// Long and repetitive expressions are followed in linear time.
void test_large() {
    Languages   languages;
    std::string pattern;
    for (int i = 0; i < 3000; i++) {
        pattern += "[a-z][0-9]";
    }
    const Language language = languages.regex("^" + pattern + "$", RegexSyntax::ECMASCRIPT, false);
    std::string    text;
    for (int i = 0; i < 3000; i++) {
        text += "q7";
    }
    CHECK(languages.contains(language, text) && !languages.contains(language, text + "q"));
    const Language slow = languages.regex("^(a+)+$", RegexSyntax::ECMASCRIPT, false);
    CHECK(!languages.contains(slow, std::string(5000, 'a') + "b"));
    CHECK(
        languages.contains(languages.regex("(x+x+)+y", RegexSyntax::ECMASCRIPT, false), std::string(5000, 'x') + "y"));
}

}  // namespace

int main() {
    test_random_patterns();
    test_ecmascript();
    test_python();
    test_refused();
    test_large();
    return 0;
}
