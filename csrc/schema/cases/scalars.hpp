// The values of a goal that are neither arrays nor objects. Languages are closed under union, intersection and
// complement, so these sets are exact without a normal form. Of formats of which only some texts are generated, both
// those and all are kept: what violates such a format is the complement of all.
#pragma once

#include "schema/cases/terms.hpp"

#include <map>
#include <string>
#include <vector>

namespace pyg {

// Numbers with an exponent, which number languages with bounds do not spell: all that JSON allows, none, or undecided.
enum class Exponents : uint8_t { NONE, SOME, ALL };

struct Scalars {
    bool      null = false, yes = false, no = false;
    Language  string    = Languages::NOTHING;  // texts that match for certain
    Language  possible  = Languages::NOTHING;  // all texts that match: more where a format is not followed exactly
    Language  number    = Languages::NOTHING;  // without an exponent
    Exponents exponents = Exponents::NONE;
};

class ScalarSets {
  public:
    ScalarSets(Terms & terms, Languages & languages, const SchemaOptions & options, std::vector<std::string> & notes);

    const Scalars & of(Literal literal);
    Scalars         of_goal(Goal goal);

    // True if nothing matches. PYG_ERR_GRAMMAR if that is too complex to find out.
    bool is_empty(const Scalars & scalars);

    Language numbers(const Scalars & scalars);  // all spellings

    Scalars all() const { return all_; }
    Scalars both(const Scalars & a, const Scalars & b);
    Scalars either(const Scalars & a, const Scalars & b);
    Scalars without(const Scalars & scalars);  // the complement

  private:
    Terms &                                         terms_;
    Languages &                                     languages_;
    const SchemaOptions &                           options_;
    std::vector<std::string> &                      notes_;
    Language                                        plain_, with_exponent_, integers_, spelled_integers_;
    Scalars                                         all_;
    std::vector<Scalars>                            known_;  // by literal
    std::vector<uint8_t>                            is_known_;
    std::map<std::pair<std::string, int>, Language> bounds_;  // (number, kind of bound) -> language

    Scalars of_schema(const Term & term);
    Scalars of_types(const Schema & schema);
    Scalars of_values(const Schema & schema);
    Scalars exactly_one(const Term & term);
    void    restrict_strings(const Schema & schema, Scalars & scalars);
    void    restrict_to_format(const Schema & schema, Scalars & scalars);
    void    restrict_numbers(const Schema & schema, Scalars & scalars);
    template <class Build>
    Language bound(const std::string & number, int kind, Build && build);
    Language meet(Language a, Language b);
    Language join(Language a, Language b);
    Language all_but(Language language);
};

}  // namespace pyg
