// Exact emptiness of languages: a search through derivatives for one that contains "".
#include "boundary/guard.hpp"
#include "regex/terms/language_store.hpp"

#include <algorithm>
#include <queue>

namespace pyg {

namespace {

constexpr size_t MOST_SEARCHED = 60'000;  // states of one search

}  // namespace

bool LanguageStore::is_empty(Language language) {
    const Emptiness known = emptiness_by_structure(language);
    return known == Emptiness::UNKNOWN ? !search_for_text(language) : known == Emptiness::EMPTY;
}

// What follows from parts, without a search.
LanguageStore::Emptiness LanguageStore::emptiness_by_structure(Language language) {
    const Term & term = terms_[language];
    if (term.emptiness != Emptiness::UNKNOWN) {
        return term.emptiness;
    }
    Emptiness result = Emptiness::UNKNOWN;
    if (term.kind == Kind::UNION) {
        const auto of_child = [&](Language child) { return terms_[child].emptiness; };
        const auto first = children_of(term), last = first + term.b;
        if (std::any_of(first, last, [&](Language child) { return of_child(child) == Emptiness::NOT_EMPTY; })) {
            result = Emptiness::NOT_EMPTY;
        } else if (std::all_of(first, last, [&](Language child) { return of_child(child) == Emptiness::EMPTY; })) {
            result = Emptiness::EMPTY;
        }
    } else if (term.kind == Kind::CONCAT) {
        const Emptiness a = terms_[term.a].emptiness, b = terms_[term.b].emptiness;
        if (a == Emptiness::EMPTY || b == Emptiness::EMPTY) {
            result = Emptiness::EMPTY;
        } else if (a == b) {
            result = a;
        }
    } else if (term.kind == Kind::REPEAT) {
        result = terms_[term.a].emptiness;  // it is repeated at least once, or it would contain ""
    }
    terms_[language].emptiness = result;
    return result;
}

// Languages that are all empty only if this one is.
void LanguageStore::expand(Language language, std::vector<Language> & found) {
    const Term term = terms_[language];
    found.clear();
    if (term.kind == Kind::UNION) {
        found.assign(children_of(term), children_of(term) + term.b);
        return;
    }
    for (uint64_t code_point = 0; code_point <= LAST_CODE_POINT;) {
        const auto   c     = static_cast<uint32_t>(code_point);
        const auto * saved = known(language, c);
        Transition   next;
        if (saved) {
            next = *saved;
        } else {
            next = derivative(language, c);
            remember(language, c, next);
        }
        if (next.target != Languages::NOTHING) {
            found.push_back(next.target);
        }
        code_point = uint64_t{next.high} + 1;
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
}

// An estimate of what is missing to a text: of an intersection, the sum of what its parts miss.
uint64_t LanguageStore::effort_of(Language language) const {
    const Term & term = terms_[language];
    if (term.kind != Kind::INTERSECT) {
        return term.shortest;
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < term.b; i++) {
        sum += terms_[children_of(term)[i]].shortest;
    }
    return std::min<uint64_t>(sum, UNBOUNDED);
}

// Best first, by the effort that is left. Everything on the way to a text is not empty; if there is none,
// everything that was reached is empty.
bool LanguageStore::search_for_text(Language start) {
    struct Step {
        uint64_t cost;
        Language language;
        bool     operator<(const Step & other) const { return cost > other.cost; }
    };
    std::priority_queue<Step>              queue;
    std::unordered_map<Language, Language> reached_from{{start, start}};
    std::vector<Language>                  found;
    uint64_t                               n_queued = 0;
    const auto                             push     = [&](Language language) {
        n_queued++;
        const uint64_t newest_first = (1u << 24) - std::min<uint64_t>(n_queued, (1u << 24));
        queue.push({effort_of(language) << 24 | newest_first, language});
    };
    push(start);
    while (!queue.empty()) {
        const Language language = queue.top().language;
        queue.pop();
        expand(language, found);
        for (const Language next : found) {
            if (!reached_from.emplace(next, language).second) {
                continue;
            }
            const Emptiness known_already = emptiness_by_structure(next);
            if (known_already == Emptiness::NOT_EMPTY) {
                for (Language step = next; terms_[step].emptiness = Emptiness::NOT_EMPTY, step != start;) {
                    step = reached_from[step];
                }
                return true;
            }
            if (known_already == Emptiness::UNKNOWN) {
                push(next);
            }
        }
        if (reached_from.size() > MOST_SEARCHED) {
            throw fail(PYG_ERR_GRAMMAR, "it is too complex to find out whether a combination of patterns, lengths and "
                                        "formats matches any text; simplify the patterns, or combine fewer of them");
        }
    }
    for (const auto & reached : reached_from) {
        terms_[reached.first].emptiness = Emptiness::EMPTY;
    }
    return false;
}

}  // namespace pyg
