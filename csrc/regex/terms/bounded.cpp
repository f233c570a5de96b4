// Languages without the counts that the next characters cannot reach.
#include "regex/terms/language_store.hpp"

#include <algorithm>

namespace pyg {

Language LanguageStore::within(Language language, uint32_t n) {
    const uint64_t key   = uint64_t{n} << 32 | language;
    const auto     found = bounded_.find(key);
    if (found != bounded_.end()) {
        return found->second;
    }
    const Language result = bounded(language, n);
    bounded_.emplace(key, result);
    return result;
}

Language LanguageStore::bounded(Language language, uint32_t n) {
    const Term term = terms_[language];
    switch (term.kind) {
    case Kind::CONCAT: {
        std::vector<Language> parts;
        Language              rest = language;
        uint32_t              left = n;
        for (; terms_[rest].kind == Kind::CONCAT; rest = terms_[rest].b) {
            const Language part     = terms_[rest].a;
            const uint32_t shortest = terms_[part].shortest;
            parts.push_back(within(part, left));
            // What comes later than the next characters only has to be possible.
            if (shortest > left && terms_[terms_[rest].b].emptiness == Emptiness::NOT_EMPTY) {
                rest = Languages::EMPTY_TEXT;
                break;
            }
            left -= std::min(left, shortest);
        }
        Language result = within(rest, left);
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
            result = concat(*part, result);
        }
        return result;
    }
    case Kind::REPEAT: {
        const uint32_t most_times = n / std::max(terms_[term.a].shortest, 1u);  // that can be completed
        return repeat(within(term.a, n), term.b > most_times ? most_times + 1 : term.b,
                      term.c > most_times ? UNBOUNDED : term.c);
    }
    case Kind::UNION: {
        Children children(children_of(term), children_of(term) + term.b);
        for (Language & child : children) {
            child = within(child, n);
        }
        return any_of(std::move(children));
    }
    case Kind::INTERSECT:
        return within_intersection(language, n);
    default:
        return language;
    }
}

// An intersection with a limit of lengths is the other language, if any beginning of that can still be completed within
// the limit. Other intersections stay as they are: whether a beginning can be completed may depend on far-away counts.
Language LanguageStore::within_intersection(Language language, uint32_t n) {
    const Term term = terms_[language];
    if (term.b != 2) {
        return language;
    }
    const Language any_char = terms_[Languages::ANYTHING].a;
    const Language pair[2]  = {children_of(term)[0], children_of(term)[1]};
    for (int i = 0; i < 2; i++) {
        const Term &   limit = terms_[pair[i]];
        const Language other = pair[1 - i];
        const bool     far   = limit.kind == Kind::REPEAT && limit.a == any_char && limit.b == 0 &&
                               limit.c >= add_lengths(terms_[other].detour, n);
        if (far && terms_[other].detour != UNBOUNDED) {
            return within(other, n);
        }
    }
    return language;
}

}  // namespace pyg
