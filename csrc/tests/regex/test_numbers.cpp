// Languages of numbers: every short spelling against comparison and division of the values; every beginning that the
// language allows can be completed.
#include "boundary/guard.hpp"
#include "regex/numbers/numbers.hpp"
#include "tests/support/testing.hpp"

#include <functional>
#include <string>

namespace {

using pyg::Language;
using pyg::Languages;

constexpr char   CHARS[]     = "-.0159";
constexpr size_t MOST_LENGTH = 7;  // enough to complete any beginning of 4 for bounds and divisors with 3 digits

bool is_plain(const std::string & text) {
    return pyg::is_json_number(text) && text.find_first_of("eE") == std::string::npos;
}

// Compare a language with a predicate over all texts; returns true if one below `text` is in the language.
bool compare(Languages & languages, Language language, const std::function<bool(const std::string &)> & expected,
             std::string & text) {
    bool found = languages.contains_empty_text(language);
    if (found != (is_plain(text) && expected(text))) {
        std::fprintf(stderr, "\"%s\": expected %d\n", text.c_str(), !found);
        std::exit(1);
    }
    if (text.size() == MOST_LENGTH) {
        return found;
    }
    for (const char * c = CHARS; *c; c++) {
        const Language next         = languages.after(language, static_cast<unsigned char>(*c));
        const bool     may_be_plain = text.empty() || *c != '-';
        text += *c;
        if (next != Languages::NOTHING) {
            const bool completed = compare(languages, next, expected, text);
            found                = found || completed;
            CHECK(completed || text.size() > 4);
        } else if (may_be_plain) {  // nothing that follows is expected
            std::function<void(size_t)> none = [&](size_t depth) {
                CHECK(!(is_plain(text) && expected(text)));
                for (const char * d = CHARS; depth > 0 && *d; d++) {
                    text += *d;
                    none(depth - 1);
                    text.pop_back();
                }
            };
            none(text.size() > 4 ? 1 : 2);
        }
        text.pop_back();
    }
    return found;
}

void check(const std::function<Language(Languages &)> &     language,
           const std::function<bool(const std::string &)> & expected) {
    Languages   languages;
    std::string text;
    compare(languages, language(languages), expected, text);
}

void test_comparisons() {
    for (const char * bound : {"0",    "-0",   "0.0", "1",   "-1",   "0.5", "-0.5", "10",    "1e1",  "9.9",
                               "-9.9", "0.05", "15",  "-15", "1.50", "100", "99",   "-0.15", "5e-2", "0.999"}) {
        for (const bool strictly : {false, true}) {
            check([&](Languages & languages) { return numbers_from(languages, bound, strictly); },
                  [&](const std::string & text) { return pyg::compare_numbers(text, bound) >= (strictly ? 1 : 0); });
            check([&](Languages & languages) { return numbers_to(languages, bound, strictly); },
                  [&](const std::string & text) { return pyg::compare_numbers(text, bound) <= (strictly ? -1 : 0); });
        }
        check([&](Languages & languages) { return numbers_equal_to(languages, bound); },
              [&](const std::string & text) { return pyg::compare_numbers(text, bound) == 0; });
    }
}

// Of a number with at most `decimals` decimals, times 10^decimals; false if it has more.
bool scaled(const std::string & text, size_t decimals, long long & value) {
    std::string  digits = text;
    const size_t point  = digits.find('.');
    std::string  fraction;
    if (point != std::string::npos) {
        fraction = digits.substr(point + 1);
        digits.resize(point);
    }
    fraction.resize(std::max(fraction.size(), decimals), '0');
    if (fraction.find_first_not_of('0', decimals) != std::string::npos) {
        return false;
    }
    value = std::atoll((digits + fraction.substr(0, decimals)).c_str());
    return true;
}

void test_multiples() {
    struct Case {
        const char * divisor;
        size_t       decimals;
        long long    scaled;
    };
    for (const Case & each : {Case{"1", 0, 1}, Case{"2", 0, 2}, Case{"7", 0, 7}, Case{"10", 0, 10}, Case{"0.01", 2, 1},
                              Case{"0.5", 1, 5}, Case{"2.50", 1, 25}, Case{"1e2", 0, 100}, Case{"150", 0, 150},
                              Case{"0.15", 2, 15}, Case{"3e-1", 1, 3}, Case{"500", 0, 500}}) {
        check([&](Languages & languages) { return multiples_of(languages, each.divisor); },
              [&](const std::string & text) {
                  long long value;
                  return scaled(text, each.decimals, value) && value % each.scaled == 0;
              });
    }
}

void test_integers() {
    check([](Languages & languages) { return json_integers(languages); },
          [](const std::string & text) { return text.find('.') == std::string::npos; });
    check([](Languages & languages) { return json_integers(languages, true); }, pyg::is_integer);
    Languages      languages;
    const Language numbers = json_numbers(languages);
    for (const char * number : {"0", "-0", "1", "-0.5", "1.0e3", "1E+5", "10e-07", "123.456"}) {
        CHECK(languages.contains(numbers, number) && pyg::is_json_number(number));
    }
    for (const char * text : {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1.e1", "NaN"}) {
        CHECK(!languages.contains(numbers, text) && !pyg::is_json_number(text));
    }
}

void test_long_numbers() {
    CHECK(pyg::compare_numbers("1e400", "1e399") == 1);
    CHECK(pyg::compare_numbers("-1e400", "1e-400") == -1);
    CHECK(pyg::compare_numbers("1e1000000000000", "10e999999999999") == 0);
    CHECK(pyg::compare_numbers("0e99999999999999999999", "-0") == 0);
    CHECK(pyg::is_integer("1.50e1") && !pyg::is_integer("1.55e1") && pyg::is_integer("0.0") &&
          pyg::is_integer("1e400"));
    Languages         languages;
    const std::string huge(500, '9');
    CHECK(languages.contains(numbers_from(languages, "1e400", false), huge));
    CHECK(!languages.contains(numbers_to(languages, "1e400", false), huge));
    CHECK(languages.contains(numbers_equal_to(languages, "1e400"), "1" + std::string(400, '0') + ".0"));
    CHECK(languages.contains(multiples_of(languages, "1e-300"), "0." + std::string(299, '0') + "7"));
    CHECK(languages.contains(multiples_of(languages, "1e300"), "7" + std::string(300, '0')));
    CHECK(!languages.contains(multiples_of(languages, "1e300"), "7" + std::string(299, '0')));
    for (const char * number : {"1e9999999999", "1e-9999999999", "1e3000"}) {
        try {
            numbers_from(languages, number, false);
            CHECK(false);
        } catch (const pyg::Failure & failure) {
            CHECK(failure.code == PYG_ERR_GRAMMAR);
        }
    }
}

void test_intersections() {
    Languages      languages;
    const Language between = languages.all_of({numbers_from(languages, "3", true), numbers_to(languages, "7", true)});
    CHECK(languages.is_empty(languages.all_of({between, multiples_of(languages, "8")})));
    const Language one = languages.all_of({between, json_integers(languages), multiples_of(languages, "5")});
    CHECK(languages.is_finite(one, 1));
    CHECK((languages.some_texts(one, 5) == std::vector<std::string>{"5"}));
    CHECK(languages.is_empty(
        languages.all_of({numbers_from(languages, "1.5", true), numbers_to(languages, "1.5", false)})));
    CHECK(!languages.is_empty(
        languages.all_of({numbers_from(languages, "1.5", false), numbers_to(languages, "1.5", false)})));
}

}  // namespace

int main() {
    test_comparisons();
    test_multiples();
    test_integers();
    test_long_numbers();
    test_intersections();
    return 0;
}
