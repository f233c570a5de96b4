// Interning of terms, and what is known of a term from its parts.
#include "boundary/guard.hpp"
#include "regex/terms/language_store.hpp"

#include <algorithm>

namespace pyg {

namespace {

constexpr size_t   MOST_TERMS    = 2'000'000;
constexpr size_t   MOST_CHILDREN = 16'000'000;
constexpr uint32_t MOST_DEPTH    = 1'500;  // recursion through derivatives, about 300 bytes of stack each

uint32_t mixed(uint32_t hash, uint32_t value) {
    const uint64_t product = (uint64_t{hash} ^ value) * 0x9E3779B97F4A7C15u;
    return static_cast<uint32_t>(product >> 32) ^ static_cast<uint32_t>(product);
}

[[noreturn]] void fail_too_complex() {
    throw fail(PYG_ERR_GRAMMAR,
               "the language is too complex: its automaton has too many states; simplify the patterns, "
               "or combine fewer of them");
}

}  // namespace

LanguageStore::LanguageStore() : index_(1024, NOT_KNOWN) {
    intern({Kind::NOTHING});
    intern({Kind::EMPTY_TEXT});
    Term anything{Kind::REPEAT};  // before the set of its characters, to have the id ANYTHING
    anything.a = 3;
    anything.c = UNBOUNDED;
    Term any_char{Kind::CHARS};
    any_char.a = set_index(CharSet::all());
    describe(any_char);
    terms_.resize(3);  // so that its description finds its part
    terms_.push_back(any_char);
    describe(anything);
    terms_.resize(2);
    intern(anything);
    intern(any_char);
}

void LanguageStore::grow_index() {
    std::vector<uint32_t> larger(index_.size() * 2, NOT_KNOWN);
    const size_t          mask = larger.size() - 1;
    for (Language id = 0; id < terms_.size(); id++) {
        size_t slot = terms_[id].hash & mask;
        while (larger[slot] != NOT_KNOWN) {
            slot = (slot + 1) & mask;
        }
        larger[slot] = id;
    }
    index_.swap(larger);
}

Language LanguageStore::intern(Term term) {
    term.hash         = hash_of(term);
    const size_t mask = index_.size() - 1;
    size_t       slot = term.hash & mask;
    for (; index_[slot] != NOT_KNOWN; slot = (slot + 1) & mask) {
        const Term & other = terms_[index_[slot]];
        if (other.hash == term.hash && same_expression(other, term)) {
            return index_[slot];
        }
    }
    if (terms_.size() >= MOST_TERMS || children_.size() + edges_.size() >= MOST_CHILDREN) {
        fail_too_complex();
    }
    if (terms_.size() > 3) {
        describe(term);
    } else if (term.kind == Kind::NOTHING || term.kind == Kind::EMPTY_TEXT) {
        describe(term);
    }
    const auto id = static_cast<Language>(terms_.size());
    terms_.push_back(term);
    rows_.emplace_back();
    index_[slot] = id;
    if (terms_.size() * 2 > index_.size()) {
        grow_index();
    }
    return id;
}

Language LanguageStore::intern_list(Kind kind, const Children & children) {
    Term term{kind};
    term.a = static_cast<uint32_t>(children_.size());
    term.b = static_cast<uint32_t>(children.size());
    children_.insert(children_.end(), children.begin(), children.end());
    const size_t   before = terms_.size();
    const Language id     = intern(term);
    if (terms_.size() == before) {
        children_.resize(term.a);
    }
    return id;
}

// Edges are sorted. Texts of one character are a set.
Language LanguageStore::trie(const std::vector<Edge> & edges, bool with_empty_text) {
    if (edges.empty()) {
        return with_empty_text ? Languages::EMPTY_TEXT : Languages::NOTHING;
    }
    const bool is_set =
        std::all_of(edges.begin(), edges.end(), [](const Edge & edge) { return edge.target == Languages::EMPTY_TEXT; });
    if (is_set) {
        CharSet set;
        for (const Edge & edge : edges) {
            if (!set.ranges.empty() && set.ranges.back().second + 1 == edge.code_point) {
                set.ranges.back().second++;
            } else {
                set.ranges.emplace_back(edge.code_point, edge.code_point);
            }
        }
        const Language one = chars(set);
        return with_empty_text ? optional(one) : one;
    }
    Term term{Kind::TRIE};
    term.a = static_cast<uint32_t>(edges_.size());
    term.b = static_cast<uint32_t>(edges.size());
    term.c = with_empty_text;
    edges_.insert(edges_.end(), edges.begin(), edges.end());
    const size_t   before = terms_.size();
    const Language id     = intern(term);
    if (terms_.size() == before) {
        edges_.resize(term.a);
    }
    return id;
}

uint32_t LanguageStore::set_index(const CharSet & set) {
    uint64_t hash = set.ranges.size();
    for (const auto & [low, high] : set.ranges) {
        hash = (hash ^ (uint64_t{high} << 32 | low)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    const auto [first, last] = set_index_.equal_range(hash);
    for (auto found = first; found != last; ++found) {
        if (sets_[found->second] == set) {
            return found->second;
        }
    }
    const auto index = static_cast<uint32_t>(sets_.size());
    sets_.push_back(set);
    set_index_.emplace(hash, index);
    set_bytes_ += 64 + sizeof(CharSet) + set.ranges.size() * sizeof(set.ranges[0]);
    return index;
}

uint32_t LanguageStore::hash_of(const Term & term) const {
    uint32_t hash = mixed(0x85EBCA6Bu, static_cast<uint32_t>(term.kind));
    if (term.kind == Kind::UNION || term.kind == Kind::INTERSECT) {
        for (uint32_t i = 0; i < term.b; i++) {
            hash = mixed(hash, children_of(term)[i]);
        }
        return hash;
    }
    if (term.kind == Kind::TRIE) {
        for (uint32_t i = 0; i < term.b; i++) {
            hash = mixed(mixed(hash, edges_of(term)[i].code_point), edges_of(term)[i].target);
        }
        return mixed(hash, term.c);
    }
    return mixed(mixed(mixed(hash, term.a), term.b), term.c);
}

bool LanguageStore::same_expression(const Term & a, const Term & b) const {
    if (a.kind != b.kind || a.b != b.b || a.c != b.c) {
        return false;
    }
    if (a.kind == Kind::UNION || a.kind == Kind::INTERSECT) {
        return std::equal(children_of(a), children_of(a) + a.b, children_of(b));
    }
    if (a.kind == Kind::TRIE) {
        return std::equal(edges_of(a), edges_of(a) + a.b, edges_of(b));
    }
    return a.a == b.a;
}

void LanguageStore::describe_list(Term & term) const {
    const bool is_union = term.kind == Kind::UNION;
    term.nullable       = !is_union;
    term.plain          = is_union;
    term.shortest       = is_union ? UNBOUNDED : 0;
    term.longest        = is_union ? 0 : UNBOUNDED;
    term.detour         = is_union ? 0 : UNBOUNDED;
    bool is_certain     = false;
    for (uint32_t i = 0; i < term.b; i++) {
        const Term & child = terms_[children_of(term)[i]];
        term.nullable      = is_union ? term.nullable || child.nullable : term.nullable && child.nullable;
        term.plain         = term.plain && child.plain;
        term.depth         = std::max(term.depth, child.depth + 1);
        is_certain         = is_certain || (is_union && child.emptiness == Emptiness::NOT_EMPTY);
        if (is_union) {
            term.shortest = std::min(term.shortest, child.shortest);
            term.longest  = std::max(term.longest, child.longest);
            term.detour   = std::max(term.detour, child.detour);
        } else {
            term.shortest = std::max(term.shortest, child.shortest);
            term.longest  = std::min(term.longest, child.longest);
        }
    }
    term.emptiness = is_certain ? Emptiness::NOT_EMPTY : Emptiness::UNKNOWN;
}

void LanguageStore::describe(Term & term) const {
    const auto certain_if = [&](bool condition) {
        term.emptiness = condition ? Emptiness::NOT_EMPTY : Emptiness::UNKNOWN;
    };
    switch (term.kind) {
    case Kind::NOTHING:
        term.emptiness = Emptiness::EMPTY;
        term.longest   = 0;
        break;
    case Kind::EMPTY_TEXT:
        term.nullable = term.plain = true;
        term.longest = term.detour = 0;
        break;
    case Kind::CHARS:
        term.plain    = true;
        term.shortest = term.longest = term.detour = 1;
        certain_if(true);
        break;
    case Kind::TRIE:
        term.plain    = true;
        term.nullable = term.c;
        term.shortest = UNBOUNDED;
        term.longest  = 0;
        for (uint32_t i = 0; i < term.b; i++) {
            const Term & target = terms_[edges_of(term)[i].target];
            term.shortest       = std::min(term.shortest, add_lengths(target.shortest, 1));
            term.longest        = std::max(term.longest, add_lengths(target.longest, 1));
        }
        term.shortest = term.c ? 0 : term.shortest;
        term.detour   = term.longest;
        certain_if(true);
        break;
    case Kind::CONCAT: {
        const Term &a = terms_[term.a], &b = terms_[term.b];
        term.nullable = a.nullable && b.nullable;
        term.plain    = a.plain && b.plain;
        term.shortest = add_lengths(a.shortest, b.shortest);
        term.longest  = add_lengths(a.longest, b.longest);
        term.detour   = std::max(add_lengths(a.detour, b.shortest), b.detour);
        term.depth    = a.nullable ? std::max(a.depth, b.depth) + 1 : a.depth + 1;
        certain_if(a.emptiness == Emptiness::NOT_EMPTY && b.emptiness == Emptiness::NOT_EMPTY);
        break;
    }
    case Kind::REPEAT: {
        const Term & one = terms_[term.a];
        term.nullable    = term.b == 0;
        term.plain       = one.plain;
        term.shortest    = multiply_lengths(one.shortest, term.b);
        term.longest     = multiply_lengths(one.longest, term.c);
        term.detour      = add_lengths(one.detour, multiply_lengths(one.shortest, term.b));
        term.depth       = one.depth + 1;
        certain_if(one.emptiness == Emptiness::NOT_EMPTY);
        break;
    }
    case Kind::UNION:
    case Kind::INTERSECT:
        describe_list(term);
        break;
    case Kind::COMPLEMENT: {
        const Term & inner = terms_[term.a];
        term.nullable      = !inner.nullable;
        term.shortest      = term.nullable ? 0 : 1;
        term.depth         = inner.depth + 1;
        certain_if(inner.longest != UNBOUNDED);
        break;
    }
    case Kind::AUTOMATON: {
        const CharAutomaton::State state = CharAutomaton::State{term.c} << 32 | term.b;
        term.nullable                    = automata_[term.a]->is_accepting(state);
        term.shortest                    = automata_[term.a]->shortest(state);
        certain_if(true);  // states that no text continues from are not entered
        break;
    }
    case Kind::VARIABLE:
        term.nullable = term.b;
        term.depth    = 2;
        break;
    }
    if (term.nullable) {
        term.emptiness = Emptiness::NOT_EMPTY;
        term.shortest  = 0;
    }
    if (!term.plain) {
        term.detour = UNBOUNDED;
    }
    if (term.depth > MOST_DEPTH) {
        throw fail(PYG_ERR_GRAMMAR,
                   "the language is too complex: a pattern has more than %u nested or optional parts in "
                   "a row; simplify it",
                   MOST_DEPTH);
    }
}

size_t LanguageStore::n_bytes() const {
    return terms_.capacity() * (sizeof(Term) + sizeof(Row)) + index_.capacity() * sizeof(index_[0]) +
           children_.capacity() * sizeof(Language) + edges_.capacity() * sizeof(Edge) + set_bytes_ +
           n_transitions_ * sizeof(Transition) + ascii_.size() * sizeof(ascii_[0]) +
           bounded_.size() * (sizeof(std::pair<uint64_t, Language>) + 3 * sizeof(void *)) +
           variables_.capacity() * sizeof(Variable) + automata_.capacity() * sizeof(automata_[0]);
}

}  // namespace pyg
