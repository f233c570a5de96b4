// Languages against sets of texts: random expressions are computed twice, as languages and as the set of their texts of
// at most five characters.
#include "boundary/guard.hpp"
#include "regex/languages.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <bitset>
#include <functional>
#include <random>

namespace {

using pyg::CharSet;
using pyg::Language;
using pyg::Languages;

constexpr size_t MOST_LENGTH = 5;
constexpr size_t N_TEXTS     = 63;  // of a and b

using Texts = std::bitset<N_TEXTS>;

const std::vector<std::string> & all_texts() {
    static const std::vector<std::string> texts = [] {
        std::vector<std::string> all{""};
        for (size_t i = 0; all.size() < N_TEXTS; i++) {
            all.push_back(all[i] + "a");
            all.push_back(all[i] + "b");
        }
        return all;
    }();
    return texts;
}

size_t index_of(const std::string & text) {
    size_t index = 0;
    for (const char c : text) {
        index = index * 2 + (c == 'a' ? 1 : 2);
    }
    return index;
}

Texts concat(const Texts & first, const Texts & second) {
    Texts result;
    for (size_t i = 0; i < N_TEXTS; i++) {
        for (size_t j = 0; first[i] && j < N_TEXTS; j++) {
            const std::string text = all_texts()[i] + all_texts()[j];
            if (second[j] && text.size() <= MOST_LENGTH) {
                result.set(index_of(text));
            }
        }
    }
    return result;
}

Texts repeat(const Texts & one, uint32_t least, uint32_t most) {
    Texts power, result;
    power.set(0);
    for (uint32_t n = 0; n <= std::min<uint32_t>(most, least + MOST_LENGTH); n++, power = concat(power, one)) {
        result |= n >= least ? power : Texts();
    }
    return result;
}

struct Both {
    Language language;
    Texts    texts;
};

using Random = std::mt19937;

uint32_t below(Random & random, uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random); }

Both random_leaf(Languages & languages, Random & random) {
    Texts        texts;
    const auto & some = all_texts()[below(random, 15)];
    switch (below(random, 6)) {
    case 0:
        return {Languages::NOTHING, texts};
    case 1:
        return {Languages::ANYTHING, texts.set()};
    case 2:
        texts.set(1).set(2);
        return {languages.chars(CharSet::all()), texts};
    case 3:
        texts.set(1);
        return {languages.chars(CharSet::of({{'a', 'a'}})), texts};
    default:
        texts.set(index_of(some));
        return {languages.text(some), texts};
    }
}

Both random_language(Languages & languages, Random & random, int depth) {
    if (depth == 0) {
        return random_leaf(languages, random);
    }
    const Both a = random_language(languages, random, depth - 1);
    const Both b = random_language(languages, random, depth - 1);
    switch (below(random, 8)) {
    case 0:
    case 1:
        return {languages.concat(a.language, b.language), concat(a.texts, b.texts)};
    case 2:
    case 3:
        return {languages.any_of({a.language, b.language}), a.texts | b.texts};
    case 4:
        return {languages.all_of({a.language, b.language}), a.texts & b.texts};
    case 5:
        return {languages.without(a.language, b.language), a.texts & ~b.texts};
    case 6:
        return {languages.complement(a.language), ~a.texts};
    default: {
        const uint32_t least = below(random, 3), most = below(random, 3) ? least + below(random, 4) : pyg::UNBOUNDED;
        return {languages.repeat(a.language, least, most), repeat(a.texts, least, most)};
    }
    }
}

bool starts_with(const std::string & text, const std::string & beginning) {
    return text.compare(0, beginning.size(), beginning) == 0;
}

Language after(Languages & languages, Language language, const std::string & text) {
    for (const char c : text) {
        language = languages.after(language, static_cast<unsigned char>(c));
    }
    return language;
}

// Texts are contained as expected, and states are NOTHING exactly if no text follows.
void check(Languages & languages, const Both & both) {
    for (size_t i = 0; i < N_TEXTS; i++) {
        const std::string & text = all_texts()[i];
        CHECK(languages.contains(both.language, text) == both.texts[i]);
        const Language rest = after(languages, both.language, text);
        CHECK(languages.is_empty(rest) == (rest == Languages::NOTHING) || text.empty());
        for (size_t k = 0; rest == Languages::NOTHING && k < N_TEXTS; k++) {
            CHECK(!(both.texts[k] && starts_with(all_texts()[k], text)));
        }
        for (const std::string & more : languages.some_texts(rest, 2)) {
            CHECK(languages.contains(both.language, text + more));
        }
        CHECK(languages.some_texts(rest, 1).empty() == languages.is_empty(rest));
    }
}

void check_identities(Languages & languages, const Both & a, const Both & b) {
    const auto same = [&](Language x, Language y) {
        return languages.is_empty(languages.without(x, y)) && languages.is_empty(languages.without(y, x));
    };
    CHECK(same(languages.complement(languages.complement(a.language)), a.language));
    CHECK(same(languages.complement(languages.any_of({a.language, b.language})),
               languages.all_of({languages.complement(a.language), languages.complement(b.language)})));
    CHECK(same(languages.complement(languages.all_of({a.language, b.language})),
               languages.any_of({languages.complement(a.language), languages.complement(b.language)})));
    CHECK(languages.is_empty(languages.without(a.language, a.language)));
    CHECK(same(languages.any_of({a.language, languages.complement(a.language)}), Languages::ANYTHING));
    CHECK(languages.any_of({a.language, b.language}) == languages.any_of({b.language, a.language}));
}

void test_random_languages() {
    Random random(1);
    for (int i = 0; i < 3000; i++) {
        Languages  languages;
        const Both a = random_language(languages, random, 3), b = random_language(languages, random, 2);
        check(languages, a);
        check_identities(languages, a, b);
    }
}

// Beginnings of up to n characters are as possible, and as complete, as without the bound.
void check_bounded(Languages & languages, Language language, uint32_t n) {
    const Language bounded = languages.within(language, n);
    for (const std::string & text : all_texts()) {
        if (text.size() <= n) {
            const Language exact = after(languages, language, text), shorter = after(languages, bounded, text);
            CHECK((exact == Languages::NOTHING) == (shorter == Languages::NOTHING));
            CHECK(languages.contains_empty_text(exact) == languages.contains_empty_text(shorter));
        }
    }
}

void test_bounded_languages() {
    Random random(2);
    for (int i = 0; i < 3000; i++) {
        Languages  languages;
        const Both both = random_language(languages, random, 3);
        for (uint32_t n = 0; n <= MOST_LENGTH; n++) {
            check_bounded(languages, both.language, n);
            check_bounded(languages, languages.all_of({both.language, languages.lengths(0, 7)}), n);
        }
    }
    Languages      languages;
    const Language letters = languages.repeat(languages.chars(CharSet::of({{'a', 'z'}})), 1, 255);
    const Language later   = after(languages, letters, std::string(100, 'x'));
    CHECK(later != after(languages, letters, std::string(101, 'x')));
    CHECK(languages.within(later, 32) == languages.within(after(languages, later, "x"), 32));
    CHECK(languages.within(later, 200) != languages.within(after(languages, later, "x"), 200));
    const Language words   = languages.regex("[a-z]+(-[a-z]+)*", pyg::RegexSyntax::ECMASCRIPT, true);
    const Language limited = after(languages, languages.all_of({words, languages.lengths(0, 255)}), "abc-d");
    CHECK(languages.within(limited, 32) == languages.within(after(languages, limited, "ef"), 32));
}

void test_counted_repetitions() {
    Languages      languages;
    const Language letters = languages.repeat(languages.chars(CharSet::of({{'a', 'z'}})), 3, 100000);
    CHECK(!languages.contains(letters, "ab") && languages.contains(letters, std::string(5000, 'q')));
    const Language pairs = languages.repeat(languages.text("ab"), 50, 50);
    CHECK(languages.is_empty(languages.all_of({pairs, languages.lengths(0, 99)})));
    CHECK(!languages.is_empty(languages.all_of({pairs, languages.lengths(100, 100)})));
    const Language late = languages.regex("x.{60}", pyg::RegexSyntax::ECMASCRIPT, false);
    CHECK(languages.contains(late, std::string(300, 'x')) && !languages.contains(late, std::string(60, 'x')));
}

void test_many_texts() {
    Languages             languages;
    std::vector<Language> texts;
    for (int i = 0; i < 1000; i++) {
        texts.push_back(languages.text("name-" + std::to_string(i * 7919)));
    }
    const Language names = languages.any_of(texts);
    CHECK(languages.contains(names, "name-7919") && !languages.contains(names, "name-791"));
    CHECK(languages.is_finite(names, 1000) && !languages.is_finite(names, 999));
    CHECK(languages.some_texts(names, 2000).size() == 1000);
    std::reverse(texts.begin(), texts.end());
    CHECK(languages.any_of(texts) == names);
    const Language others = languages.complement(names);
    CHECK(!languages.contains(others, "name-7919") && languages.contains(others, "name-791"));
    CHECK(after(languages, names, "name-x") == Languages::NOTHING);
    CHECK(languages.is_empty(languages.all_of({names, languages.regex("^x", pyg::RegexSyntax::ECMASCRIPT, false)})));
    const std::string long_text(100000, 'y');
    CHECK(languages.contains(languages.any_of({languages.text(long_text + "a"), languages.text(long_text + "b")}),
                             long_text + "b"));
}

void test_characters() {
    Languages      languages;
    const Language wide = languages.text("\xE2\x82\xAC\xF0\x9F\x98\x80");
    CHECK(languages.after(languages.after(wide, 0x20AC), 0x1F600) == Languages::EMPTY_TEXT);
    CHECK(languages.meets(wide, 0x800, 0xFFFF) && !languages.meets(wide, 0x80, 0x20AB));
    CHECK(!languages.meets(Languages::NOTHING, 0, pyg::LAST_CODE_POINT));
    CHECK((languages.some_texts(wide, 3) == std::vector<std::string>{"\xE2\x82\xAC\xF0\x9F\x98\x80"}));
    CHECK(pyg::complement(pyg::complement(CharSet::of({{5, 9}, {7, 12}, {14, 14}}))) ==
          CharSet::of({{5, 12}, {14, 14}}));
}

// Budgets end what would take for ever, with an error.
void test_too_complex() {
    Languages  languages;
    const auto refused = [](const std::function<void()> & body) {
        try {
            body();
        } catch (const pyg::Failure & failure) {
            return failure.code == PYG_ERR_GRAMMAR;
        }
        return false;
    };
    const Language a = languages.regex("a.{40}", pyg::RegexSyntax::ECMASCRIPT, false);
    const Language b = languages.regex("[^]*b[^]{41}", pyg::RegexSyntax::ECMASCRIPT, true);
    CHECK(refused([&] {
              languages.is_empty(languages.all_of({languages.complement(a), b, languages.lengths(200, 300),
                                                   languages.regex("c[^]{43}$", pyg::RegexSyntax::ECMASCRIPT, false),
                                                   languages.complement(b)}));
          }) ||
          languages.is_empty(languages.without(b, b)));
    CHECK(refused([&] {
        Language language = languages.text("x");
        for (int i = 0; i < 100000; i++) {
            language = languages.concat(languages.any_of({language, Languages::EMPTY_TEXT}), languages.text("y"));
        }
    }));
    CHECK(languages.n_bytes() > 1000);
}

}  // namespace

int main() {
    test_random_languages();
    test_bounded_languages();
    test_counted_repetitions();
    test_many_texts();
    test_characters();
    test_too_complex();
    return 0;
}
