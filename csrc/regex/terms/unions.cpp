// Unions, and the tries that unions of texts become.
#include "regex/terms/language_store.hpp"

#include <algorithm>
#include <tuple>

namespace pyg {

namespace {

constexpr uint32_t MOST_MERGED_DEPTH = 400;  // of recursion; longer common beginnings are merged as they are followed
constexpr uint32_t MOST_SPLIT_CHARS  = 256;  // characters of a set that joins a trie

uint32_t n_chars(const CharSet & set) {
    uint32_t n = 0;
    for (const auto & [low, high] : set.ranges) {
        n += high - low + 1;
    }
    return n;
}

bool has(const std::vector<Language> & sorted, Language language) {
    return std::binary_search(sorted.begin(), sorted.end(), language);
}

void sort_unique(std::vector<Language> & languages) {
    std::sort(languages.begin(), languages.end());
    languages.erase(std::unique(languages.begin(), languages.end()), languages.end());
}

}  // namespace

// Replace children of the same kind by theirs; sorted, without duplicates, and without those that contain another
// (unions: are contained in another) by their form.
void LanguageStore::flatten(Kind kind, Children & languages) const {
    const size_t n = languages.size();
    for (size_t i = 0; i < n; i++) {
        const Term & child = terms_[languages[i]];
        if (child.kind == kind) {
            languages.insert(languages.end(), children_of(child), children_of(child) + child.b);
        }
    }
    sort_unique(languages);
    const Kind dual    = kind == Kind::UNION ? Kind::INTERSECT : Kind::UNION;
    const auto removed = [&](Language language) {
        const Term & child = terms_[language];
        return child.kind == kind ||
               (child.kind == dual && std::any_of(children_of(child), children_of(child) + child.b,
                                                  [&](Language part) { return has(languages, part); }));
    };
    Children kept;
    std::copy_if(languages.begin(), languages.end(), std::back_inserter(kept),
                 [&](Language language) { return !removed(language); });
    languages.swap(kept);
}

// True if a language, or all children of a union or intersection that was flattened, are among sorted ones.
bool LanguageStore::includes(const Children & languages, Language language, Kind flattened) const {
    const Term & term = terms_[language];
    return term.kind == flattened
               ? std::includes(languages.begin(), languages.end(), children_of(term), children_of(term) + term.b)
               : has(languages, language);
}

// Take sets, tries and complements out of the languages of a union. False if the union is ANYTHING.
bool LanguageStore::gather_union(Children & languages, CharSet & set, Children & tries, Children & complements) const {
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    Children                                   others;
    for (const Language language : languages) {
        const Term & child = terms_[language];
        switch (child.kind) {
        case Kind::NOTHING:
            break;
        case Kind::CHARS:
            ranges.insert(ranges.end(), set_of(child).ranges.begin(), set_of(child).ranges.end());
            break;
        case Kind::TRIE:
            tries.push_back(language);
            break;
        case Kind::COMPLEMENT:
            if (includes(languages, child.a, Kind::UNION)) {
                return false;
            }
            complements.push_back(child.a);
            break;
        default:
            if (language == Languages::ANYTHING) {
                return false;
            }
            others.push_back(language);
        }
    }
    set = CharSet::of(std::move(ranges));
    languages.swap(others);
    return true;
}

Language LanguageStore::any_of(Children languages) {
    if (languages.size() == 1) {
        return languages[0];
    }
    flatten(Kind::UNION, languages);
    CharSet  set;
    Children tries, complements;
    if (!gather_union(languages, set, tries, complements)) {
        return Languages::ANYTHING;
    }
    if (!complements.empty()) {
        const Language joined = complement(all_of(std::move(complements)));
        if (joined == Languages::ANYTHING) {
            return joined;
        }
        languages.push_back(joined);
    }
    bool with_empty_text = !languages.empty() && languages[0] == Languages::EMPTY_TEXT;
    if (with_empty_text) {
        languages.erase(languages.begin());
    }
    merge_repetitions(languages);
    const bool is_nullable =
        std::any_of(languages.begin(), languages.end(), [&](Language language) { return terms_[language].nullable; });
    with_empty_text = with_empty_text && !is_nullable;
    if (!set.is_empty()) {
        (!tries.empty() && n_chars(set) <= MOST_SPLIT_CHARS ? tries : languages).push_back(chars(set));
    }
    if (!tries.empty()) {
        if (with_empty_text) {
            tries.push_back(Languages::EMPTY_TEXT);
        }
        with_empty_text = false;
        languages.push_back(merge_tries(tries, 0));
    }
    sort_unique(languages);
    if (languages.empty()) {
        return with_empty_text ? Languages::EMPTY_TEXT : Languages::NOTHING;
    }
    if (languages.size() == 1) {
        return with_empty_text ? optional(languages[0]) : languages[0];
    }
    if (with_empty_text) {
        languages.insert(languages.begin(), Languages::EMPTY_TEXT);
    }
    return intern_list(Kind::UNION, languages);
}

// The union of "", sets and tries.
Language LanguageStore::merge_tries(const Children & tries, uint32_t depth) {
    if (tries.size() == 1) {
        return tries[0];
    }
    if (depth > MOST_MERGED_DEPTH) {
        Children children = tries;
        sort_unique(children);
        return children.size() == 1 ? children[0] : intern_list(Kind::UNION, children);
    }
    std::vector<Edge> edges;
    bool              with_empty_text = false;
    for (const Language language : tries) {
        const Term & term    = terms_[language];
        const Term & content = term.kind == Kind::REPEAT ? terms_[term.a] : term;  // an optional set
        with_empty_text      = with_empty_text || term.nullable;
        if (content.kind == Kind::TRIE) {
            edges.insert(edges.end(), edges_of(content), edges_of(content) + content.b);
        } else if (content.kind == Kind::CHARS) {
            for (const auto & [low, high] : set_of(content).ranges) {
                for (uint32_t code_point = low; code_point <= high; code_point++) {
                    edges.push_back({code_point, Languages::EMPTY_TEXT});
                }
            }
        } else if (content.kind == Kind::UNION) {  // of tries with long common beginnings
            Children children(children_of(content), children_of(content) + content.b);
            children.insert(children.end(), tries.begin(), tries.end());
            sort_unique(children);
            return intern_list(Kind::UNION, children);
        }
    }
    std::sort(edges.begin(), edges.end(), [](const Edge & a, const Edge & b) {
        return std::tie(a.code_point, a.target) < std::tie(b.code_point, b.target);
    });
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    std::vector<Edge> merged;
    Children          targets;
    for (size_t i = 0; i < edges.size();) {
        const uint32_t code_point = edges[i].code_point;
        targets.clear();
        for (; i < edges.size() && edges[i].code_point == code_point; i++) {
            targets.push_back(edges[i].target);
        }
        merged.push_back({code_point, targets.size() == 1 ? targets[0] : merge_tries(Children(targets), depth + 1)});
    }
    return trie(merged, with_empty_text);
}

// x{a,b}y | x{c,d}y = x{a,d}y where the ranges touch.
void LanguageStore::merge_repetitions(Children & languages) {
    struct Repetition {
        Language one, tail;
        uint32_t least, most;
    };
    std::vector<Repetition> found;
    Children                others;
    for (const Language language : languages) {
        const Term &   term   = terms_[language];
        const bool     joined = term.kind == Kind::CONCAT;
        const Language head   = joined ? term.a : language;
        Repetition     part{0, joined ? term.b : Languages::EMPTY_TEXT, 0, 0};
        if (terms_[head].kind == Kind::REPEAT && split_repetition(head, part.one, part.least, part.most)) {
            found.push_back(part);
        } else {
            others.push_back(language);
        }
    }
    if (found.size() < 2) {
        return;
    }
    std::sort(found.begin(), found.end(), [](const Repetition & a, const Repetition & b) {
        return std::tie(a.one, a.tail, a.least) < std::tie(b.one, b.tail, b.least);
    });
    size_t n = 0;
    for (size_t i = 1; i < found.size(); i++) {
        Repetition & last = found[n];
        if (last.one == found[i].one && last.tail == found[i].tail && found[i].least <= add_lengths(last.most, 1)) {
            last.most = std::max(last.most, found[i].most);
        } else {
            found[++n] = found[i];
        }
    }
    if (n + 1 == found.size()) {
        return;
    }
    found.resize(n + 1);
    for (const Repetition & part : found) {
        others.push_back(concat(repeat(part.one, part.least, part.most), part.tail));
    }
    languages.swap(others);
    if (std::find(languages.begin(), languages.end(), Languages::ANYTHING) != languages.end()) {
        languages = {Languages::ANYTHING};
    }
}

}  // namespace pyg
