// Terms of languages: interned expressions, their algebra, and their derivatives. What Languages owns.
//
// A term is an expression over characters: equal expressions have equal ids, and the operations simplify, so that
// few terms have the same language. Expressions without intersections, complements and variables are "plain"; of them,
// the shortest text is known exactly and none is empty. Whether others are empty is found out by a search through
// their derivatives (emptiness.cpp), once per term.
#pragma once

#include "regex/languages.hpp"

#include <array>
#include <deque>
#include <unordered_map>

namespace pyg {

class LanguageStore {
  public:
    enum class Kind : uint8_t {
        NOTHING,
        EMPTY_TEXT,
        CHARS,       // a: index of the set
        TRIE,        // texts by their first character. a: index of the first edge, b: number of edges, c: 1 with ""
        CONCAT,      // a, b; `a` is no concatenation itself
        REPEAT,      // a: term, b: least, c: most; least is 0 if `a` contains ""
        UNION,       // a: index of the first child, b: number of children, sorted
        INTERSECT,   // the same
        COMPLEMENT,  // a
        AUTOMATON,   // a: index of the automaton, b, c: low and high half of its state
        VARIABLE,    // a: index of the variable
    };

    enum class Emptiness : uint8_t { UNKNOWN, EMPTY, NOT_EMPTY };

    struct Term {
        Kind      kind;
        bool      nullable  = false;  // contains ""
        bool      plain     = false;
        Emptiness emptiness = Emptiness::UNKNOWN;
        uint32_t  a = 0, b = 0, c = 0;
        uint32_t  shortest = 0;          // lower bound of lengths of its texts; exact if plain
        uint32_t  longest  = UNBOUNDED;  // upper bound
        uint32_t  detour   = UNBOUNDED;  // any beginning of a text can be completed with so many characters
        uint32_t  depth    = 1;          // of the recursion through derivatives
        uint32_t  hash     = 0;
    };

    struct Edge {
        uint32_t code_point;
        Language target;

        bool operator==(const Edge & other) const { return code_point == other.code_point && target == other.target; }
    };

    // Where characters low..high lead. A target that is not known to be empty may be.
    struct Transition {
        uint32_t low, high;
        Language target;
    };

    LanguageStore();

    // --- building (algebra.cpp, unions.cpp) ---
    Language chars(const CharSet & set);
    Language text(const std::vector<uint32_t> & code_points);
    Language concat(Language first, Language second);
    Language repeat(Language one, uint32_t least, uint32_t most);
    Language any_of(std::vector<Language> languages);
    Language all_of(std::vector<Language> languages);
    Language complement(Language language);
    Language automaton(std::shared_ptr<const CharAutomaton> automaton);

    // A language that may be defined by itself, where each mention of it comes after a character, or in a union or
    // intersection: the smallest solution. `nullable`: it contains "". To be defined before it is followed.
    Language variable(bool nullable);
    void     define(Language variable, Language definition);

    // --- asking ---
    const Term &    term(Language language) const { return terms_[language]; }
    const CharSet & set_of(const Term & term) const { return sets_[term.a]; }
    bool            is_empty(Language language);  // emptiness.cpp

    // --- following (derivatives.cpp) ---
    Language after(Language language, uint32_t code_point) {
        const Language * row = rows_[language].ascii;
        if (code_point < N_ASCII && row && row[code_point] != NOT_KNOWN) {
            return row[code_point];
        }
        return after_slowly(language, code_point);
    }
    Transition transition(Language language, uint32_t code_point);  // empty targets are NOTHING

    Language within(Language language, uint32_t n);  // bounded.cpp

    size_t n_bytes() const;

  private:
    static constexpr uint32_t N_ASCII   = 128;
    static constexpr Language NOT_KNOWN = UINT32_MAX;

    struct Row {
        std::vector<Transition> transitions;  // known ones, by their characters
        Language *              ascii = nullptr;
    };

    struct Variable {
        Language definition = NOT_KNOWN;
        uint32_t n_in_use   = 0;  // its derivative is being computed
    };

    using Children = std::vector<Language>;

    // terms.cpp
    Language         intern(Term term);
    Language         intern_list(Kind kind, const Children & children);
    Language         trie(const std::vector<Edge> & edges, bool with_empty_text);
    uint32_t         set_index(const CharSet & set);
    bool             same_expression(const Term & a, const Term & b) const;
    uint32_t         hash_of(const Term & term) const;
    void             describe(Term & term) const;
    void             describe_list(Term & term) const;
    void             grow_index();
    const Language * children_of(const Term & term) const { return &children_[term.a]; }
    const Edge *     edges_of(const Term & term) const { return &edges_[term.a]; }

    // algebra.cpp
    Language merge_tries(const Children & tries, uint32_t depth);
    Language optional(Language language);
    bool     split_repetition(Language language, Language & one, uint32_t & least, uint32_t & most) const;
    void     flatten(Kind kind, Children & languages) const;
    bool     includes(const Children & languages, Language language, Kind flattened) const;
    bool     gather_union(Children & languages, CharSet & set, Children & tries, Children & complements) const;
    void     merge_repetitions(Children & languages);
    Language intersect_repetitions(Children & languages);
    void     drop_bounds(Children & languages);

    // derivatives.cpp
    Language           after_slowly(Language language, uint32_t code_point);
    Transition         derivative(Language language, uint32_t code_point);
    Transition         computed(Language language, uint32_t code_point);
    bool               is_shared(Language language) const;
    Transition         of_trie(const Term & term, uint32_t code_point) const;
    Transition         of_concat(const Term & term, uint32_t code_point);
    Transition         of_list(const Term & term, uint32_t code_point);
    Transition         of_automaton(const Term & term, uint32_t code_point);
    Transition         of_variable(const Term & term, uint32_t code_point);
    const Transition * known(Language language, uint32_t code_point) const;
    void               remember(Language language, uint32_t code_point, Transition transition);

    // emptiness.cpp
    Emptiness emptiness_by_structure(Language language);
    uint64_t  effort_of(Language language) const;
    bool      search_for_text(Language language);
    void      expand(Language language, std::vector<Language> & found);

    // bounded.cpp
    Language within_intersection(Language language, uint32_t n);
    Language bounded(Language language, uint32_t n);

    std::vector<Term>                                 terms_;
    std::vector<Row>                                  rows_;
    std::vector<uint32_t>                             index_;  // hash table of terms
    std::vector<Language>                             children_;
    std::vector<Edge>                                 edges_;
    std::vector<CharSet>                              sets_;
    std::unordered_multimap<uint64_t, uint32_t>       set_index_;
    std::vector<std::shared_ptr<const CharAutomaton>> automata_;
    std::vector<Variable>                             variables_;
    std::deque<std::array<Language, N_ASCII>>         ascii_;
    std::unordered_map<uint64_t, Language>            bounded_;  // by language and n
    size_t                                            set_bytes_ = 0, n_transitions_ = 0;
    uint64_t n_cuts_   = 0;  // derivatives that were left out because they are being computed
    uint32_t n_nested_ = 0;  // derivatives being computed
};

// Sum or product of lengths, where UNBOUNDED stays so.
inline uint32_t add_lengths(uint32_t a, uint32_t b) { return a >= UNBOUNDED - b ? UNBOUNDED : a + b; }
inline uint32_t multiply_lengths(uint32_t a, uint32_t b) {
    const uint64_t product = a == 0 || b == 0 ? 0 : a == UNBOUNDED || b == UNBOUNDED ? UNBOUNDED : uint64_t{a} * b;
    return product >= UNBOUNDED ? UNBOUNDED : static_cast<uint32_t>(product);
}

// The code points of valid UTF-8, which is what callers give; of anything else, PYG_ERR_INVALID_PARAMETER.
std::vector<uint32_t> code_points_of(const std::string & utf8);
void                  append_utf8(std::string & text, uint32_t code_point);

}  // namespace pyg
