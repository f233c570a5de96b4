// Trigger patterns: same results as std::regex for random patterns and texts, and linear time for those on which
// std::regex does not terminate.
#include "boundary/guard.hpp"
#include "sampling/grammar/triggers/pattern.hpp"
#include "tests/support/testing.hpp"

#include <random>
#include <regex>

namespace {

using Random = std::mt19937;

template <class... Choice>
std::string one_of(Random & random, Choice... choices) {
    const std::string all[] = {choices...};
    return all[std::uniform_int_distribution<size_t>(0, sizeof...(choices) - 1)(random)];
}

std::string random_pattern(Random & random, int depth) {
    const auto any = [&] { return random_pattern(random, depth - 1); };
    if (depth == 0) {
        return one_of(random, "a", "b", "c", ".", "[ab]", "[^a]", "\\w", "\\s", "\\d", "[a-b0]", "\\n", "[[:alpha:]]",
                      "\\.", "ab", " ", "^", "$", "\\b", "\\B", "[\\s\\S]", "[\\w-]", "[-a]", "}", "\\x61");
    }
    switch (std::uniform_int_distribution<int>(0, 7)(random)) {
    case 0:
        return any() + "|" + any();
    case 1:
        return "(?:" + any() + ")" + one_of(random, "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{1,}", "{0}");
    case 2:
        return "(" + any() + ")";
    case 3:
        return one_of(random, "(?=", "(?!") + one_of(random, "a", "ab?", "[ab]c", "b{1,2}", "$") + ")" + any();
    case 4:
        return one_of(random, "a", "b", ".", "[ab]") + one_of(random, "*", "+", "?", "*?", "+?", "??", "{1,2}");
    default:
        return any() + any();
    }
}

std::string random_text(Random & random) {
    std::string  text;
    const size_t n = std::uniform_int_distribution<size_t>(0, 9)(random);
    for (size_t i = 0; i < n; i++) {
        text += one_of(random, "a", "a", "b", "c", "0", " ", "\n", ".", "-");
    }
    return text;
}

// Check that std::regex also finds a match, and where it starts.
void same_as_standard(const std::string & pattern, const std::string & text) {
    std::smatch match;
    const bool  found = std::regex_search(text, match, std::regex(pattern));
    // Without capture groups, the grammar starts at the match.
    const std::regex  groups("\\((?!\\?)");
    const std::string without = std::regex_replace(pattern, groups, "(?:");
    const size_t      at      = pyg::TriggerPattern(without).find(text);
    const size_t      wanted  = found ? static_cast<size_t>(match.position(0)) : std::string::npos;
    if (at != wanted) {
        std::fprintf(stderr, "\"%s\" in \"%s\": %zd, but the standard library: %zd\n", pattern.c_str(), text.c_str(),
                     static_cast<ssize_t>(at), static_cast<ssize_t>(wanted));
    }
    CHECK(at == wanted);
}

void test_random_patterns() {
    Random random(1);
    for (int i = 0; i < 4000; i++) {
        const std::string pattern = random_pattern(random, 4);
        for (int j = 0; j < 5; j++) {
            same_as_standard(pattern, random_text(random));
        }
    }
}

size_t find(const char * pattern, const std::string & text) { return pyg::TriggerPattern(pattern).find(text); }

void test_where_the_grammar_begins() {
    CHECK(find("the answer is", "so the answer is 5") == 3);
    CHECK(find("answer is (\\d+)", "so the answer is 5") == 17);
    CHECK(find("answer(x?)( is) ", "the answer is 5") == 10);  // the first group is empty
    CHECK(find("^(?:\\s*\\{\"name\")$", "  {\"name\"") == 0);
    CHECK(find("^\\s+to$", " to be") == std::string::npos);
    CHECK(find(">>>(?!all)", ">>>all") == std::string::npos);
    CHECK(find(">>>(?!all)", ">>>al") == 0);
    CHECK(find("(a|ab)(c|bcd)", "xabcd") == 1);
    CHECK(find("ä[^b]", "xäb äc") == 5);
    CHECK(find("", "x") == 0);
}

void test_busy_patterns_take_linear_time() {
    const std::string text(20'000, 'a');
    for (const char * pattern :
         {"(.*)*(.*)*(.*)*x", "(a*)*b", "(a|aa)+$b", "((a?){30}a{30})*b", "(?:(?=a{1,9}b)a)*b"}) {
        CHECK(find(pattern, text) == std::string::npos);
    }
    CHECK(find("((((((((((a))))))))))*b", text + "b") == text.size() - 1);  // the last repetition
}

std::string refused(const std::string & pattern) {
    pyg_error error;
    CHECK(pyg::guard(&error, [&] { pyg::TriggerPattern compiled(pattern); }) == PYG_ERR_GRAMMAR);
    return error.message;
}

bool says(const std::string & message, const char * words) { return message.find(words) != std::string::npos; }

void test_what_is_refused() {
    for (const char * pattern : {"(", ")", "[", "a{", "a{2,1}", "*", "a**", "^*", "(?=a)*", "\\", "\\q", "[b-a]",
                                 "[[:x:]]", "a{1", "{1}", "(?<a>b)", "[[.a.]]", "\\u20ac", "\\x"}) {
        CHECK(says(refused(pattern), "is not a valid regular expression"));
    }
    CHECK(says(refused("(a)\\1"), "an unsupported back reference"));
    CHECK(says(refused("(?=.*a)b"), "looks ahead further"));
    CHECK(says(refused("(?=(?=a))b"), "within a lookahead"));
    CHECK(says(refused("(((a{100}){100}){100}){100}"), "repeats too much"));
    CHECK(says(refused(std::string(100'000, '(')), "too many groups"));
    std::string nested;
    for (int i = 0; i < 100'000; i++) {
        nested += "(?:";
    }
    CHECK(says(refused(nested), "too deeply"));
    CHECK(says(refused("a{99999999999}"), "too many repetitions"));
}

}  // namespace

int main() {
    test_where_the_grammar_begins();
    test_what_is_refused();
    test_busy_patterns_take_linear_time();
    test_random_patterns();
}
