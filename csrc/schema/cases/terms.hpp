// Literals and goals: what the normalizer combines.
//
// A literal is a schema in a dynamic scope, or its negation. A goal is a set of literals that all hold; the nodes of
// the result are goals. Both are numbers, so that equal ones are found again: a recursive schema becomes a cycle of
// nodes.
#pragma once

#include "boundary/guard.hpp"
#include "schema/keywords/keywords.hpp"

#include <map>
#include <unordered_map>
#include <vector>

namespace pyg {

using Literal = uint32_t;  // index of a term * 2 + 1 if it is negated
using Goal    = uint32_t;

constexpr Literal ALWAYS = 0, NEVER = 1;
constexpr Goal    ANY_VALUE = 0, NO_VALUE = 1;

constexpr Literal opposite(Literal literal) { return literal ^ 1; }
constexpr bool    is_negated(Literal literal) { return (literal & 1) != 0; }

struct Term {
    const Schema * schema = nullptr;
    uint32_t       scope  = 0;
};

// A schema that refers to itself without an array or object around it.
struct SelfReference : Failure {
    explicit SelfReference(Failure failure) : Failure(std::move(failure)) {}
};

// Limits the work for one document.
class Budget {
  public:
    // PYG_ERR_GRAMMAR if it is used up.
    void spend(size_t n, const Schema & schema, const char * keyword);

  private:
    size_t spent_ = 0;
};

class Terms {
  public:
    explicit Terms(Schemas & schemas);

    // --- literals ---------------------------------------------------------------------------------------------------

    // The literal of a schema: of the one that it refers to, if it does nothing else.
    Literal literal(const Schema & schema, uint32_t scope);
    Literal below(const Term & term, const Schema & schema) { return literal(schema, term.scope); }

    // The same for a schema that applies to the value that `term` applies to. Throws SelfReference if it is open.
    Literal alongside(const Term & term, const Schema & schema);

    // The target of $dynamicRef or $recursiveRef.
    const Schema & dynamic_target(const Term & term);

    const Term & term(Literal literal) const { return terms_[literal / 2]; }
    std::string  place(Literal literal) const { return literal <= NEVER ? "#" : term(literal).schema->json->pointer(); }

    // True for a literal that lists values, or refuses them.
    bool has_values(Literal literal) const { return literal > NEVER && term(literal).schema->has_values; }

    // --- goals ------------------------------------------------------------------------------------------------------

    Goal                         goal(Literal literal);
    Goal                         both(Goal a, Goal b);
    Goal                         with(Goal goal, Literal literal) { return both(goal, this->goal(literal)); }
    const std::vector<Literal> & literals(Goal goal) const { return *goals_[goal]; }
    bool                         implies(Goal goal, Literal literal) const;
    size_t                       n_goals() const { return goals_.size(); }

    Schemas & schemas() { return schemas_; }
    Budget    budget;

  private:
    using Scope = std::vector<std::pair<std::string, const JsonValue *>>;  // the outermost dynamic anchors, by name

    Schemas &                                              schemas_;
    std::vector<Term>                                      terms_;
    std::vector<uint32_t>                                  open_;       // by term: how often it is being expanded
    int                                                    depth_ = 0;  // of open terms
    std::map<std::pair<const Schema *, uint32_t>, Literal> known_;
    std::map<std::vector<Literal>, Goal>                   goal_of_;
    std::vector<const std::vector<Literal> *>              goals_;
    std::unordered_map<uint64_t, Goal>                     joined_;
    std::vector<Scope>                                     scopes_;
    const Schema *                                         last_ref_ = nullptr;

    uint32_t enter(uint32_t scope, const JsonValue & json);
    Literal  canonical(const Schema & schema, uint32_t scope);
    Failure  refers_to_itself(const Schema & schema) const;
    Goal     intern(const std::vector<Literal> & literals);

    friend class OpenTerm;
};

// While it lives, the term is being expanded. PYG_ERR_GRAMMAR if too many are.
class OpenTerm {
  public:
    OpenTerm(Terms & terms, Literal literal);
    ~OpenTerm();
    OpenTerm(const OpenTerm &)             = delete;
    OpenTerm & operator=(const OpenTerm &) = delete;

  private:
    Terms &  terms_;
    uint32_t term_;
};

}  // namespace pyg
