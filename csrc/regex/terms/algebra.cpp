// Operations on languages other than unions and intersections.
#include "boundary/guard.hpp"
#include "regex/terms/language_store.hpp"

#include <algorithm>

namespace pyg {

Language LanguageStore::chars(const CharSet & set) {
    if (set.is_empty()) {
        return Languages::NOTHING;
    }
    Term term{Kind::CHARS};
    term.a = set_index(set);
    return intern(term);
}

Language LanguageStore::text(const std::vector<uint32_t> & code_points) {
    Language          rest = Languages::EMPTY_TEXT;
    std::vector<Edge> edge(1);
    for (auto code_point = code_points.rbegin(); code_point != code_points.rend(); ++code_point) {
        edge[0] = {*code_point, rest};
        rest    = trie(edge, false);
    }
    return rest;
}

// Split into a repetition and what follows it; any language is a repetition of one time.
bool LanguageStore::split_repetition(Language language, Language & one, uint32_t & least, uint32_t & most) const {
    const Term & whole = terms_[language];
    if (whole.kind == Kind::REPEAT) {
        one   = whole.a;
        least = whole.b;
        most  = whole.c;
        return true;
    }
    one   = language;
    least = most = 1;
    return whole.kind == Kind::CHARS;
}

Language LanguageStore::concat(Language first, Language second) {
    if (first == Languages::NOTHING || second == Languages::NOTHING) {
        return Languages::NOTHING;
    }
    if (first == Languages::EMPTY_TEXT) {
        return second;
    }
    if (second == Languages::EMPTY_TEXT) {
        return first;
    }
    std::vector<Language> parts;  // of `first`, which are added from the last to the first
    for (; terms_[first].kind == Kind::CONCAT; first = terms_[first].b) {
        parts.push_back(terms_[first].a);
    }
    parts.push_back(first);
    Language result = second;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        const Term & following = terms_[result];
        const bool   has_tail  = following.kind == Kind::CONCAT;
        Language     one, next;
        uint32_t     least, most, next_least, next_most;
        split_repetition(*part, one, least, most);
        split_repetition(has_tail ? following.a : result, next, next_least, next_most);
        if (one == next && (least != most || least != 1 || next_least != next_most || next_least != 1)) {
            const Language tail = has_tail ? following.b : Languages::EMPTY_TEXT;
            const Language head = repeat(one, add_lengths(least, next_least), add_lengths(most, next_most));
            result              = head;
            if (tail != Languages::EMPTY_TEXT) {
                Term term{Kind::CONCAT};
                term.a = head;
                term.b = tail;
                result = intern(term);
            }
            continue;
        }
        Term term{Kind::CONCAT};
        term.a = *part;
        term.b = result;
        result = intern(term);
    }
    return result;
}

Language LanguageStore::optional(Language language) {
    const Term & one = terms_[language];
    if (one.nullable) {
        return language;
    }
    Term term{Kind::REPEAT};
    if (one.kind == Kind::CHARS) {
        term.a = language;
        term.c = 1;
        return intern(term);
    }
    if (one.kind == Kind::REPEAT && one.b == 1) {
        term.a = one.a;
        term.c = one.c;
        return intern(term);
    }
    if (one.kind == Kind::TRIE) {
        return trie(std::vector<Edge>(edges_of(one), edges_of(one) + one.b), true);
    }
    if (one.kind == Kind::UNION) {
        Children children(children_of(one), children_of(one) + one.b);
        return any_of([&] {
            children.push_back(Languages::EMPTY_TEXT);
            return children;
        }());
    }
    return intern_list(Kind::UNION, {Languages::EMPTY_TEXT, language});
}

Language LanguageStore::repeat(Language one, uint32_t least, uint32_t most) {
    if (least > most) {
        return Languages::NOTHING;
    }
    if (most == 0 || one == Languages::EMPTY_TEXT) {
        return Languages::EMPTY_TEXT;
    }
    if (one == Languages::NOTHING) {
        return least == 0 ? Languages::EMPTY_TEXT : Languages::NOTHING;
    }
    if (least == 1 && most == 1) {
        return one;
    }
    const Term body = terms_[one];
    least           = body.nullable ? 0 : least;
    if (body.kind == Kind::UNION && children_of(body)[0] == Languages::EMPTY_TEXT) {  // (a|)* = a*
        const Children rest(children_of(body) + 1, children_of(body) + body.b);
        return repeat(any_of(rest), least, most);
    }
    if (body.kind == Kind::REPEAT) {
        // Numbers of times: any of [n * b, n * c] for n of [least, most], without gaps between them?
        const bool without_gaps =
            least == most || body.b == 0 ||
            add_lengths(multiply_lengths(body.c, least), 1) >= multiply_lengths(body.b, add_lengths(least, 1));
        if (without_gaps) {
            return repeat(body.a, multiply_lengths(body.b, least), multiply_lengths(body.c, most));
        }
    }
    if (least == 0 && most == 1) {
        return optional(one);
    }
    Term term{Kind::REPEAT};
    term.a = one;
    term.b = least;
    term.c = most;
    return intern(term);
}

Language LanguageStore::complement(Language language) {
    if (language == Languages::NOTHING) {
        return Languages::ANYTHING;
    }
    if (language == Languages::ANYTHING) {
        return Languages::NOTHING;
    }
    if (terms_[language].kind == Kind::COMPLEMENT) {
        return terms_[language].a;
    }
    Term term{Kind::COMPLEMENT};
    term.a = language;
    return intern(term);
}

Language LanguageStore::automaton(std::shared_ptr<const CharAutomaton> automaton) {
    const CharAutomaton::State start = automaton->start();
    Term                       term{Kind::AUTOMATON};
    term.a = static_cast<uint32_t>(automata_.size());
    term.b = static_cast<uint32_t>(start);
    term.c = static_cast<uint32_t>(start >> 32);
    automata_.push_back(std::move(automaton));
    return intern(term);
}

Language LanguageStore::variable(bool nullable) {
    Term term{Kind::VARIABLE};
    term.a = static_cast<uint32_t>(variables_.size());
    term.b = nullable;
    variables_.emplace_back();
    return intern(term);
}

void LanguageStore::define(Language variable, Language definition) {
    variables_[terms_[variable].a].definition = definition;
}

}  // namespace pyg
