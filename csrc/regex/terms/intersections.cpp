// Intersections.
#include "regex/terms/language_store.hpp"

#include <algorithm>

namespace pyg {

Language LanguageStore::all_of(Children languages) {
    if (languages.size() == 1) {
        return languages[0];
    }
    flatten(Kind::INTERSECT, languages);
    const auto contains = [&](Language language) {
        return std::binary_search(languages.begin(), languages.end(), language);
    };
    if (contains(Languages::NOTHING)) {
        return Languages::NOTHING;
    }
    if (contains(Languages::EMPTY_TEXT)) {
        const bool all_nullable = std::all_of(languages.begin(), languages.end(),
                                              [&](Language language) { return terms_[language].nullable; });
        return all_nullable ? Languages::EMPTY_TEXT : Languages::NOTHING;
    }
    Children others, removed;
    for (const Language language : languages) {
        const Term & child = terms_[language];
        if (child.kind == Kind::COMPLEMENT) {
            if (includes(languages, child.a, Kind::INTERSECT)) {
                return Languages::NOTHING;
            }
            removed.push_back(child.a);
        } else if (language != Languages::ANYTHING) {
            others.push_back(language);
        }
    }
    if (!removed.empty()) {
        const Language union_of_removed = any_of(std::move(removed));
        const Term &   term             = terms_[union_of_removed];
        const bool     contradicts =
            term.kind == Kind::UNION && std::any_of(children_of(term), children_of(term) + term.b, contains);
        if (contradicts || union_of_removed == Languages::ANYTHING || contains(union_of_removed)) {
            return Languages::NOTHING;
        }
        others.push_back(complement(union_of_removed));
    }
    languages.swap(others);
    const Language repetition = intersect_repetitions(languages);
    if (repetition == Languages::NOTHING || languages.empty()) {
        return repetition;
    }
    if (repetition != Languages::ANYTHING) {
        languages.push_back(repetition);
    }
    if (languages.size() > 1) {
        drop_bounds(languages);
    }
    uint32_t shortest = 0, longest = UNBOUNDED;
    for (const Language language : languages) {
        shortest = std::max(shortest, terms_[language].shortest);
        longest  = std::min(longest, terms_[language].longest);
    }
    if (shortest > longest) {
        return Languages::NOTHING;
    }
    std::sort(languages.begin(), languages.end());
    languages.erase(std::unique(languages.begin(), languages.end()), languages.end());
    if (languages.size() == 1) {
        return languages[0];
    }
    if (longest == 0) {
        const bool all_nullable = std::all_of(languages.begin(), languages.end(),
                                              [&](Language language) { return terms_[language].nullable; });
        return all_nullable ? Languages::EMPTY_TEXT : Languages::NOTHING;
    }
    return intern_list(Kind::INTERSECT, languages);
}

// Take repetitions of sets of characters out of the languages of an intersection. Returns the intersection of those.
Language LanguageStore::intersect_repetitions(Children & languages) {
    CharSet  set   = CharSet::all();
    uint32_t least = 0, most = UNBOUNDED;
    Children others;
    for (const Language language : languages) {
        Language one;
        uint32_t one_least, one_most;
        if (split_repetition(language, one, one_least, one_most) && terms_[one].kind == Kind::CHARS) {
            set   = intersection_of(set, set_of(terms_[one]));
            least = std::max(least, one_least);
            most  = std::min(most, one_most);
        } else {
            others.push_back(language);
        }
    }
    if (others.size() == languages.size()) {
        return Languages::ANYTHING;
    }
    languages.swap(others);
    return repeat(chars(set), least, most);
}

// Drop limits of lengths that another language has by itself.
void LanguageStore::drop_bounds(Children & languages) {
    const Language any_char = terms_[Languages::ANYTHING].a;
    for (Language & language : languages) {
        Language one;
        uint32_t least, most;
        if (!split_repetition(language, one, least, most) || one != any_char) {
            continue;
        }
        for (const Language other : languages) {
            if (other != language) {
                least = terms_[other].shortest >= least ? 0 : least;
                most  = terms_[other].longest <= most ? UNBOUNDED : most;
            }
        }
        language = repeat(any_char, least, most);
        break;  // there is one at most
    }
    languages.erase(std::remove(languages.begin(), languages.end(), Languages::ANYTHING), languages.end());
}

}  // namespace pyg
