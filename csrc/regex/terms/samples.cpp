// Texts of languages, and how many there are.
#include "regex/terms/samples.hpp"

#include "boundary/guard.hpp"

#include <algorithm>
#include <queue>
#include <set>

namespace pyg {

namespace {

constexpr size_t MOST_EXPANDED = 30'000;   // beginnings of texts that are listed
constexpr size_t MOST_COUNTED  = 400'000;  // transitions of texts that are counted

bool is_surrogate(uint32_t code_point) { return code_point >= 0xD800 && code_point <= 0xDFFF; }

// Letters, digits, other visible characters of ASCII, the rest.
uint32_t rank_of(uint32_t c) {
    return c >= 'a' && c <= 'z'                               ? 0
           : (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? 1
           : c > ' ' && c <= '~'                              ? 2
                                                              : 3;
}

// Up to n characters of low..high, letters and digits first.
std::vector<uint32_t> examples(uint32_t low, uint32_t high, size_t n) {
    std::vector<uint32_t> found;
    const auto            take = [&](uint32_t from, uint32_t to, auto && accepts) {
        for (uint32_t c = std::max(low, from); c <= std::min(high, to) && found.size() < n; c++) {
            if (accepts(c)) {
                found.push_back(c);
            }
        }
    };
    for (uint32_t rank = 0; rank < 3; rank++) {
        take('!', '~', [&](uint32_t c) { return rank_of(c) == rank; });
    }
    take(0x7F, LAST_CODE_POINT, [](uint32_t c) { return !is_surrogate(c); });
    take(0, ' ', [](uint32_t) { return true; });
    return found;
}

struct Beginning {
    size_t      shortest;  // length of a whole text, at least
    uint64_t    order;     // the newest first
    std::string text;
    size_t      length;
    Language    rest;
    bool        is_whole;

    bool operator<(const Beginning & other) const {
        return shortest != other.shortest ? shortest > other.shortest : order < other.order;
    }
};

struct Step {
    uint32_t code_point;
    Language target;
};

// Up to n characters to each language that follows; letters and digits first.
std::vector<Step> steps_from(LanguageStore & store, Language language, size_t n) {
    std::vector<Step> steps;
    for (uint64_t code_point = 0; code_point <= LAST_CODE_POINT;) {
        const auto next = store.transition(language, static_cast<uint32_t>(code_point));
        code_point      = uint64_t{next.high} + 1;
        if (next.target != Languages::NOTHING) {
            for (const uint32_t example : examples(next.low, next.high, n)) {
                steps.push_back({example, next.target});
            }
        }
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Step & a, const Step & b) { return rank_of(a.code_point) < rank_of(b.code_point); });
    return steps;
}

}  // namespace

// A search for the n shortest paths: n beginnings that lead to the same language at the most matter.
std::vector<std::string> some_texts(LanguageStore & store, Language language, size_t n) {
    std::vector<std::string> texts;
    if (n == 0 || store.is_empty(language)) {
        return texts;
    }
    std::priority_queue<Beginning>       queue;
    std::unordered_map<Language, size_t> n_expanded;
    uint64_t                             order = 0;
    queue.push({store.term(language).shortest, order++, "", 0, language, false});
    for (size_t step = 0; !queue.empty() && texts.size() < n; step++) {
        const Beginning beginning = queue.top();
        queue.pop();
        if (beginning.is_whole) {
            texts.push_back(beginning.text);
            continue;
        }
        if (step > MOST_EXPANDED) {
            throw fail(PYG_ERR_GRAMMAR, "the language is too complex to list texts of it");
        }
        if (n_expanded[beginning.rest]++ >= n) {
            continue;
        }
        if (store.term(beginning.rest).nullable) {
            queue.push({beginning.length, order++, beginning.text, beginning.length, Languages::NOTHING, true});
        }
        const std::vector<Step> steps = steps_from(store, beginning.rest, n);
        for (auto next = steps.rbegin(); next != steps.rend(); ++next) {
            const size_t length = beginning.length + 1;
            std::string  text   = beginning.text;
            append_utf8(text, next->code_point);
            queue.push({add_lengths(store.term(next->target).shortest, static_cast<uint32_t>(length)), order++,
                        std::move(text), length, next->target, false});
        }
    }
    return texts;
}

namespace {

// A language on the path of the walk below.
struct Visited {
    Language language;
    uint64_t next_code_point;
    size_t   n_texts;
};

}  // namespace

// Depth first: a language that follows itself has infinitely many texts.
bool is_finite(LanguageStore & store, Language language, size_t most_texts) {
    if (store.is_empty(language)) {
        return true;
    }
    std::unordered_map<Language, size_t> counted;
    std::set<Language>                   on_path{language};
    std::vector<Visited>                 path{{language, 0, store.term(language).nullable ? size_t{1} : 0}};
    for (size_t step = 0; !path.empty(); step++) {
        Visited & top = path.back();
        if (top.n_texts > most_texts) {
            return false;  // every language on the path has them, too
        }
        if (step > MOST_COUNTED) {
            throw fail(PYG_ERR_GRAMMAR, "the language is too complex to count its texts");
        }
        if (top.next_code_point > LAST_CODE_POINT) {
            const size_t n_texts = top.n_texts;
            on_path.erase(top.language);
            counted[top.language] = n_texts;
            path.pop_back();
            continue;
        }
        const auto   next    = store.transition(top.language, static_cast<uint32_t>(top.next_code_point));
        const size_t n_chars = next.high - top.next_code_point + 1;
        if (next.target == Languages::NOTHING) {
            top.next_code_point = uint64_t{next.high} + 1;
            continue;
        }
        if (on_path.count(next.target) || n_chars > most_texts) {
            return false;
        }
        const auto known = counted.find(next.target);
        if (known != counted.end()) {
            top.n_texts += known->second * n_chars;
            top.next_code_point = uint64_t{next.high} + 1;
        } else {  // and come back for the count
            on_path.insert(next.target);
            path.push_back({next.target, 0, store.term(next.target).nullable ? size_t{1} : 0});
        }
    }
    return counted[language] <= most_texts;
}

}  // namespace pyg
