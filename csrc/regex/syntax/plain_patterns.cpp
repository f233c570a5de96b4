// From regular expressions without assertions to languages: they are expressions of the store.
#include "regex/syntax/pattern.hpp"
#include "regex/terms/language_store.hpp"

#include <algorithm>

namespace pyg {

namespace {

bool is_one_char(const Pattern & pattern) {
    return pattern.kind == Pattern::Kind::CHARS && pattern.set.ranges.size() == 1 &&
           pattern.set.ranges[0].first == pattern.set.ranges[0].second;
}

}  // namespace

Language plain_pattern(LanguageStore & store, const Pattern & pattern) {
    switch (pattern.kind) {
    case Pattern::Kind::CHARS:
        return store.chars(pattern.set);
    case Pattern::Kind::SEQUENCE:
        return plain_sequence(store, pattern, 0, pattern.children.size());
    case Pattern::Kind::CHOICE: {
        std::vector<Language> alternatives;
        for (const Pattern & child : pattern.children) {
            alternatives.push_back(plain_pattern(store, child));
        }
        return store.any_of(std::move(alternatives));
    }
    default:
        return plain_rest(store, pattern, 0);
    }
}

// A repetition that was made n_done times.
Language plain_rest(LanguageStore & store, const Pattern & repeat, uint32_t n_done) {
    return store.repeat(plain_pattern(store, repeat.children[0]), repeat.least - std::min(repeat.least, n_done),
                        repeat.most == UNBOUNDED ? UNBOUNDED : repeat.most - n_done);
}

Language plain_sequence(LanguageStore & store, const Pattern & sequence, size_t first, size_t last) {
    Language result = Languages::EMPTY_TEXT;
    while (last > first) {
        size_t start = last;
        while (start > first && is_one_char(sequence.children[start - 1])) {
            start--;
        }
        if (start < last) {
            std::vector<uint32_t> text;
            for (size_t i = start; i < last; i++) {
                text.push_back(sequence.children[i].set.ranges[0].first);
            }
            result = store.concat(store.text(text), result);
            last   = start;
        } else {
            last--;
            result = store.concat(plain_pattern(store, sequence.children[last]), result);
        }
    }
    return result;
}

}  // namespace pyg
