// Derivatives, and the rows of transitions that remember them.
#include "boundary/guard.hpp"
#include "regex/terms/language_store.hpp"

#include <algorithm>

namespace pyg {

namespace {

constexpr uint32_t MOST_NESTED = 6'000;  // derivatives within derivatives; only variables go deeper than terms do

// Counts while it lives.
struct Nesting {
    uint32_t & n;
    explicit Nesting(uint32_t & counter) : n(counter) { n++; }
    ~Nesting() { n--; }
};

}  // namespace

// The known transition for a character, or null.
const LanguageStore::Transition * LanguageStore::known(Language language, uint32_t code_point) const {
    const std::vector<Transition> & row = rows_[language].transitions;
    const auto after = std::upper_bound(row.begin(), row.end(), code_point,
                                        [](uint32_t c, const Transition & transition) { return c < transition.low; });
    return after != row.begin() && std::prev(after)->high >= code_point ? &*std::prev(after) : nullptr;
}

void LanguageStore::remember(Language language, uint32_t code_point, Transition transition) {
    std::vector<Transition> & row = rows_[language].transitions;
    const auto after = std::upper_bound(row.begin(), row.end(), code_point,
                                        [](uint32_t c, const Transition & other) { return c < other.low; });
    if (after != row.begin()) {
        if (std::prev(after)->high >= code_point) {
            return;
        }
        transition.low = std::max(transition.low, std::prev(after)->high + 1);
    }
    if (after != row.end()) {
        transition.high = std::min(transition.high, after->low - 1);
    }
    row.insert(after, transition);
    n_transitions_++;
}

// The derivative by a character, and the characters around it that have the same.
LanguageStore::Transition LanguageStore::derivative(Language language, uint32_t code_point) {
    if (const Transition * found = known(language, code_point)) {
        return *found;
    }
    const Nesting nesting(n_nested_);
    if (n_nested_ > MOST_NESTED) {
        throw fail(PYG_ERR_GRAMMAR, "the language is too complex: its look-arounds are nested too deeply");
    }
    const uint64_t   n_cuts = n_cuts_;
    const Transition result = computed(language, code_point);
    if (n_cuts_ == n_cuts && is_shared(language)) {
        remember(language, code_point, result);
    }
    return result;
}

// True for terms of which many others are made, so that their derivatives are worth the memory.
bool LanguageStore::is_shared(Language language) const {
    const Term & term = terms_[language];
    return term.kind == Kind::UNION || term.kind == Kind::INTERSECT || term.kind == Kind::VARIABLE ||
           (term.kind == Kind::CONCAT && terms_[term.a].nullable);
}

LanguageStore::Transition LanguageStore::computed(Language language, uint32_t code_point) {
    const Term term = terms_[language];
    switch (term.kind) {
    case Kind::CHARS: {
        const auto & ranges = set_of(term).ranges;
        const auto   after  = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                               [](uint32_t c, const auto & range) { return c < range.first; });
        const auto   before = after == ranges.begin() ? ranges.end() : std::prev(after);
        if (before != ranges.end() && before->second >= code_point) {
            return {before->first, before->second, Languages::EMPTY_TEXT};
        }
        return {before == ranges.end() ? 0 : before->second + 1,
                after == ranges.end() ? LAST_CODE_POINT : after->first - 1, Languages::NOTHING};
    }
    case Kind::TRIE:
        return of_trie(term, code_point);
    case Kind::CONCAT:
        return of_concat(term, code_point);
    case Kind::REPEAT: {
        Transition     one  = derivative(term.a, code_point);
        const uint32_t most = term.c == UNBOUNDED ? UNBOUNDED : term.c - 1;
        if (one.target != Languages::NOTHING) {
            one.target = concat(one.target, repeat(term.a, term.b > 0 ? term.b - 1 : 0, most));
        }
        return one;
    }
    case Kind::UNION:
    case Kind::INTERSECT:
        return of_list(term, code_point);
    case Kind::COMPLEMENT: {
        Transition inner = derivative(term.a, code_point);
        inner.target     = complement(inner.target);
        return inner;
    }
    case Kind::AUTOMATON:
        return of_automaton(term, code_point);
    case Kind::VARIABLE:
        return of_variable(term, code_point);
    default:
        return {0, LAST_CODE_POINT, Languages::NOTHING};
    }
}

LanguageStore::Transition LanguageStore::of_trie(const Term & term, uint32_t code_point) const {
    const Edge * first = edges_of(term);
    const Edge * last  = first + term.b;
    const Edge * found =
        std::lower_bound(first, last, code_point, [](const Edge & edge, uint32_t c) { return edge.code_point < c; });
    if (found != last && found->code_point == code_point) {
        return {code_point, code_point, found->target};
    }
    return {found == first ? 0 : std::prev(found)->code_point + 1,
            found == last ? LAST_CODE_POINT : found->code_point - 1, Languages::NOTHING};
}

LanguageStore::Transition LanguageStore::of_concat(const Term & term, uint32_t code_point) {
    Transition result = derivative(term.a, code_point);
    result.target     = concat(result.target, term.b);
    if (terms_[term.a].nullable) {
        const Transition rest = derivative(term.b, code_point);
        result.low            = std::max(result.low, rest.low);
        result.high           = std::min(result.high, rest.high);
        result.target         = any_of({result.target, rest.target});
    }
    return result;
}

LanguageStore::Transition LanguageStore::of_list(const Term & term, uint32_t code_point) {
    const bool     is_union  = term.kind == Kind::UNION;
    const Language absorbing = is_union ? Languages::ANYTHING : Languages::NOTHING;
    Transition     result{0, LAST_CODE_POINT, absorbing};
    Children       targets;
    for (uint32_t i = 0; i < term.b; i++) {
        const Transition child = derivative(children_of(term)[i], code_point);
        if (child.target == absorbing) {
            return child;
        }
        result.low  = std::max(result.low, child.low);
        result.high = std::min(result.high, child.high);
        targets.push_back(child.target);
    }
    result.target = is_union ? any_of(std::move(targets)) : all_of(std::move(targets));
    return result;
}

LanguageStore::Transition LanguageStore::of_automaton(const Term & term, uint32_t code_point) {
    const CharAutomaton & automaton = *automata_[term.a];
    const auto &          ranges    = automaton.alphabet().ranges;
    const auto            after     = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                                       [](uint32_t c, const auto & range) { return c < range.first; });
    if (after == ranges.begin() || std::prev(after)->second < code_point) {
        return {after == ranges.begin() ? 0 : std::prev(after)->second + 1,
                after == ranges.end() ? LAST_CODE_POINT : after->first - 1, Languages::NOTHING};
    }
    const CharAutomaton::State state = CharAutomaton::State{term.c} << 32 | term.b;
    const uint32_t             last  = std::min(automaton.last_alike(state, code_point), std::prev(after)->second);
    CharAutomaton::State       next;
    if (!automaton.next(state, code_point, next)) {
        return {code_point, last, Languages::NOTHING};
    }
    Term target{Kind::AUTOMATON};
    target.a = term.a;
    target.b = static_cast<uint32_t>(next);
    target.c = static_cast<uint32_t>(next >> 32);
    return {code_point, last, intern(target)};
}

// The smallest solution: what a variable would add to its own derivative is nothing more. Derivatives that such a cut
// had no part in are final.
LanguageStore::Transition LanguageStore::of_variable(const Term & term, uint32_t code_point) {
    if (variables_[term.a].n_in_use > 0) {
        n_cuts_++;
        return {0, LAST_CODE_POINT, Languages::NOTHING};
    }
    const Nesting  in_use(variables_[term.a].n_in_use);  // no variables are created meanwhile
    const Language definition = variables_[term.a].definition;
    return derivative(definition, code_point);
}

LanguageStore::Transition LanguageStore::transition(Language language, uint32_t code_point) {
    Transition result;
    if (const Transition * found = known(language, code_point)) {
        result = *found;
    } else {
        result = derivative(language, code_point);
        remember(language, code_point, result);
    }
    if (terms_[result.target].emptiness != Emptiness::NOT_EMPTY && is_empty(result.target)) {
        result.target = Languages::NOTHING;
    }
    return result;
}

Language LanguageStore::after_slowly(Language language, uint32_t code_point) {
    const Transition result = transition(language, code_point);
    if (code_point >= N_ASCII) {
        return result.target;
    }
    Language *& row = rows_[language].ascii;
    if (!row) {
        ascii_.emplace_back();
        row = ascii_.back().data();
        std::fill_n(row, N_ASCII, NOT_KNOWN);
    }
    std::fill(row + result.low, row + std::min(result.high, N_ASCII - 1) + 1, result.target);
    return result.target;
}

}  // namespace pyg
