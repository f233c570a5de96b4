// Regular languages: sets of texts over Unicode code points, closed under union, intersection and complement, and
// followed character by character as deterministic automata that are built lazily from Brzozowski derivatives.
//
// Repetitions are counted instead of copied: `[a-z]{1,255}` is one term, and each character lowers its counts.
// Sources: Brzozowski, "Derivatives of regular expressions" (1964); Owens, Reppy and Turon, "Regular-expression
// derivatives reexamined" (2009).
#pragma once

#include "regex/char_set.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pyg {

// A set of texts; equal ids are equal languages. A language is also a state: the texts that may still follow.
using Language = uint32_t;

constexpr uint32_t UNBOUNDED = UINT32_MAX;

enum class RegexSyntax : uint8_t {
    ECMASCRIPT,  // ECMA-262 with the flag "u", as in JSON Schema's `pattern`; its \d, \w, \s and \b
    PYTHON,      // Python's `re`, as in `regex=`; its (?P<n>), (?i), \A, \Z; \d, \w, \s are those of ASCII
};

// A deterministic automaton that is not written as a regular expression, such as the multiples of a number.
class CharAutomaton {
  public:
    using State                 = uint64_t;
    virtual ~CharAutomaton()    = default;
    virtual State start() const = 0;
    // False if no text continues from here with this character.
    virtual bool next(State state, uint32_t code_point, State & after) const = 0;
    virtual bool is_accepting(State state) const                             = 0;
    // The last of the characters from this one on, without a gap, that lead to the same state.
    virtual uint32_t last_alike(State, uint32_t code_point) const { return code_point; }
    // At most the length of the shortest text that follows; a good estimate makes searches short.
    virtual uint32_t        shortest(State state) const { return is_accepting(state) ? 0 : 1; }
    virtual const CharSet & alphabet() const = 0;  // characters outside are never accepted
};

// Creates and owns languages. For one thread at a time. Functions that build or follow languages throw PYG_ERR_GRAMMAR
// when a language becomes too complex (too many terms, or too many states to find out whether it is empty).
class Languages {
  public:
    static constexpr Language NOTHING    = 0;  // no text
    static constexpr Language EMPTY_TEXT = 1;  // ""
    static constexpr Language ANYTHING   = 2;  // every text

    Languages();
    ~Languages();
    Languages(const Languages &)             = delete;
    Languages & operator=(const Languages &) = delete;

    // --- building -------------------------------------------------------------------------------------------------

    Language chars(const CharSet & set);      // one character
    Language text(const std::string & utf8);  // exactly this text, of valid UTF-8
    Language concat(Language first, Language second);
    Language repeat(Language one, uint32_t least, uint32_t most);  // most: UNBOUNDED for no limit
    Language any_of(std::vector<Language> languages);              // union
    Language all_of(std::vector<Language> languages);              // intersection
    Language without(Language from, Language removed);
    Language complement(Language language);
    Language lengths(uint32_t least, uint32_t most);  // texts of so many characters
    Language automaton(std::shared_ptr<const CharAutomaton> automaton);

    // The texts that a regular expression matches: as a whole, or anywhere in them (as `pattern` does). Throws
    // PYG_ERR_GRAMMAR with the reason for invalid expressions, and for what is not regular (back references) or not
    // supported, by name. Look-arounds, word boundaries, anchors inside and \p{...} are supported.
    Language regex(const std::string & pattern, RegexSyntax syntax, bool whole);

    // --- asking -----------------------------------------------------------------------------------------------------

    bool contains_empty_text(Language language);
    bool is_empty(Language language);  // exact; NOTHING is the id of every language for which this was found out
    bool contains(Language language, const std::string & utf8);
    bool is_finite(Language language, size_t most_texts);              // true if it has at most so many texts
    std::vector<std::string> some_texts(Language language, size_t n);  // shortest first

    // --- following --------------------------------------------------------------------------------------------------

    // The language of the rest after one character; NOTHING exactly if no text of the language begins so.
    // A table look-up once the state is known.
    Language after(Language language, uint32_t code_point);

    // True if some character of low..high leads on.
    bool meets(Language language, uint32_t low, uint32_t high);

    // A language with the same beginnings of up to `n` characters, including which of them are complete: counts of
    // repetitions beyond that are dropped. Token masks of texts whose limits are far away are then the same.
    Language within(Language language, uint32_t n);

    // True for languages of every text with least..most characters (most: UNBOUNDED), such as ANYTHING.
    bool is_any_text(Language language, uint32_t & least, uint32_t & most) const;

    // True if what may come next never depends on what came: the texts of some characters are exactly the beginnings of
    // the language's texts, as in `[a-z]+` and `^.+@.+$`. False also if that takes too long to find out. Found out once
    // for each language.
    bool has_free_beginnings(Language language, CharSet & characters);

    size_t n_bytes() const;  // taken by terms and tables

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pyg
