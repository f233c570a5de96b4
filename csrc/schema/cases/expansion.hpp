// Disjunctive normal form of what a schema says about one structural type, objects or arrays.
//
// A literal is expanded to cases: a value of the type matches the literal if and only if it matches one of them. Each
// case is a conjunction. Schemas of the members and items stay goals, which become nodes of their own.
#pragma once

#include "schema/cases/case_lists.hpp"
#include "schema/cases/scalars.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace pyg {

// What expansions share.
class Emptiness {
  public:
    virtual ~Emptiness() = default;
    // True if no value can match, as far as that is found out quickly.
    virtual bool is_surely_empty(Goal goal) = 0;
};

// `tracked`: cases say which members or items the schema evaluates, for an `unevaluatedProperties` or
// `unevaluatedItems` around it. Then each set of alternatives of an anyOf that may match together is a case of its own.
template <class Case>
class Expansion : public CaseLists<Case> {
  public:
    using typename CaseLists<Case>::Cases;

    Expansion(Terms & terms, uint8_t type) : CaseLists<Case>(terms), type_(type) {}

    const Cases & cases(Literal literal, bool tracked) {
        const auto key   = std::make_pair(literal, tracked && !is_negated(literal));
        const auto found = known_.find(key);
        if (found != known_.end()) {
            return found->second;
        }
        Cases result;
        if (literal == ALWAYS) {
            result.emplace_back();
        } else if (literal != NEVER) {
            const OpenTerm open(terms_, literal);
            const Term     term = terms_.term(literal);  // terms may move
            result              = is_negated(literal) ? negative(term) : positive(literal, term, key.second);
        }
        return known_.emplace(key, std::move(result)).first->second;
    }

    Cases of_goal(Goal goal) { return conjunction(terms_.literals(goal)); }

  protected:
    using CaseLists<Case>::append;
    using CaseLists<Case>::meets;
    using CaseLists<Case>::product;
    using CaseLists<Case>::simplify;
    using CaseLists<Case>::terms_;

    const uint8_t type_;

    virtual Cases own(const Term & term, bool tracked)                   = 0;  // of the type's own keywords
    virtual void  add_violations(const Term & term, Cases & cases)       = 0;  // of one of them
    virtual bool  is_value(const JsonValue & value) const                = 0;  // of the type
    virtual Case  of_value(const JsonValue & value)                      = 0;
    virtual void  add_other_values(const JsonValue & value, Cases & all) = 0;
    virtual void  apply_unevaluated(const Term & term, Cases & cases)    = 0;
    virtual void  forget_evaluated(Case & value)                         = 0;
    virtual bool  has_unevaluated(const Schema & schema) const           = 0;

  private:
    std::map<std::pair<Literal, bool>, Cases> known_;

    const Cases & sub(const Term & term, const Schema & schema, bool tracked) {
        return cases(terms_.alongside(term, schema), tracked);
    }
    const Cases & not_sub(const Term & term, const Schema & schema) {
        return cases(opposite(terms_.alongside(term, schema)), false);
    }

    // Literals of one value. What is certain comes first, of all of them and of what they refer to: it excludes most
    // alternatives of the others before these multiply.
    Cases conjunction(const std::vector<Literal> & literals) {
        std::vector<Literal> plain, others;
        for (const Literal literal : literals) {
            if (literal == NEVER) {
                return {};
            }
            collect(literal, plain, others);
        }
        Cases result(1);
        for (const Literal literal : plain) {
            const Term term = terms_.term(literal);
            if ((term.schema->types & type_) == 0) {
                return {};
            }
            result = certain(term, false, result);
        }
        for (const Literal literal : plain) {
            const Term term = terms_.term(literal);  // terms may move
            result          = uncertain(term, false, std::move(result));
        }
        for (const Literal literal : others) {
            if (literal == NEVER) {
                return {};
            }
            result = product(result, cases(literal, false), *terms_.term(literal).schema, "not", false);
        }
        return result;
    }

    // Split literals into plain ones, with those of allOf and references, and others.
    void collect(Literal literal, std::vector<Literal> & plain, std::vector<Literal> & others) {
        if (literal == ALWAYS) {
            return;
        }
        std::vector<Literal> & list =
            is_negated(literal) || has_unevaluated(*terms_.term(literal).schema) ? others : plain;
        if (std::find(list.begin(), list.end(), literal) != list.end()) {
            return;
        }
        list.push_back(literal);
        if (&list == &others) {
            return;
        }
        const Term     term = terms_.term(literal);
        const OpenTerm open(terms_, literal);
        const auto     add = [&](const Schema & schema) {
            const Literal sub = terms_.alongside(term, schema);
            if (sub == NEVER) {
                others.push_back(NEVER);
            } else {
                collect(sub, plain, others);
            }
        };
        for (const Schema * each : term.schema->all_of) {
            add(*each);
        }
        if (term.schema->ref != nullptr) {
            add(*term.schema->ref);
        }
        if (term.schema->dynamic_ref != nullptr) {
            add(terms_.dynamic_target(term));
        }
    }

    Cases positive(Literal literal, const Term & term, bool outer_tracks) {
        const Schema & schema  = *term.schema;
        const bool     tracked = outer_tracks || has_unevaluated(schema);
        if ((schema.types & type_) == 0) {
            return {};
        }
        if (!tracked) {
            return conjunction({literal});
        }
        Cases      result = certain(term, true, Cases(1));
        const auto join   = [&](const Schema & each, const char * keyword) {
            result = product(result, sub(term, each, true), schema, keyword, true);
        };
        for (const Schema * each : schema.all_of) {
            join(*each, "allOf");
        }
        if (schema.ref != nullptr) {
            join(*schema.ref, "$ref");
        }
        if (schema.dynamic_ref != nullptr) {
            join(terms_.dynamic_target(term), "$dynamicRef");
        }
        result = uncertain(term, true, std::move(result));
        apply_unevaluated(term, result);
        if (!outer_tracks) {
            for (Case & each : result) {
                forget_evaluated(each);
            }
            simplify(result, false);
        }
        return result;
    }

    Cases certain(const Term & term, bool tracked, const Cases & base) {
        Cases result = product(base, own(term, tracked), *term.schema, "properties", tracked);
        return term.schema->has_values ? product(result, of_values(*term.schema), *term.schema, "enum", tracked)
                                       : result;
    }

    // The alternatives that keywords add to `base`.
    Cases uncertain(const Term & term, bool tracked, Cases base) {
        const Schema & schema = *term.schema;
        if (schema.negated != nullptr) {
            base = product(base, not_sub(term, *schema.negated), schema, "not", tracked);
        }
        if (schema.condition != nullptr) {
            base = conditional(term, tracked, base);
        }
        if (schema.has_any_of) {
            base = product(base, tracked ? any_subset(term) : any_of(term), schema, "anyOf", tracked);
        }
        return schema.has_one_of ? exactly_one(term, tracked, base) : base;
    }

    Cases negative(const Term & term) {
        const Schema & schema = *term.schema;
        if ((schema.types & type_) == 0) {
            return Cases(1);
        }
        Cases result;
        add_violations(term, result);
        if (schema.has_values) {
            append(result, of_other_values(schema));
        }
        // What violates one of the others satisfies the keywords before, unless that multiplies cases.
        constexpr size_t MOST_PASSED = 4;
        Cases            passed      = negation_is_plain(schema) ? Cases(1) : certain(term, false, Cases(1));
        const auto       add         = [&](const Cases & violating, const char * keyword) {
            append(result,
                   product(passed.size() <= MOST_PASSED ? passed : Cases(1), violating, schema, keyword, false));
        };
        const auto add_each = [&](const Schema & each, const char * keyword) {
            add(not_sub(term, each), keyword);
            if (passed.size() <= MOST_PASSED && &each != schema.all_of.back()) {
                passed = product(passed, sub(term, each, false), schema, keyword, false);
            }
        };
        for (const Schema * each : schema.all_of) {
            add_each(*each, "allOf");
        }
        if (schema.ref != nullptr) {
            add(not_sub(term, *schema.ref), "$ref");
        }
        if (schema.dynamic_ref != nullptr) {
            add(not_sub(term, terms_.dynamic_target(term)), "$dynamicRef");
        }
        if (schema.has_any_of) {
            add(none_of(term, schema.any_of, "anyOf"), "anyOf");
        }
        if (schema.has_one_of) {
            add(none_of(term, schema.one_of, "oneOf"), "oneOf");
            add(several_of(term), "oneOf");
        }
        if (schema.negated != nullptr) {
            add(sub(term, *schema.negated, false), "not");
        }
        if (schema.condition != nullptr && schema.then != nullptr) {
            add(product(sub(term, *schema.condition, false), not_sub(term, *schema.then), schema, "then", false),
                "then");
        }
        if (schema.condition != nullptr && schema.otherwise != nullptr) {
            add(product(not_sub(term, *schema.condition), not_sub(term, *schema.otherwise), schema, "else", false),
                "else");
        }
        simplify(result, false);
        return result;
    }

    static bool negation_is_plain(const Schema & schema) {
        return schema.all_of.empty() && schema.ref == nullptr && schema.dynamic_ref == nullptr && !schema.has_any_of &&
               !schema.has_one_of && schema.negated == nullptr && schema.condition == nullptr;
    }

    Cases of_values(const Schema & schema) {
        Cases result;
        for (const JsonValue * value : schema.values) {
            if (is_value(*value)) {
                result.push_back(of_value(*value));
            }
        }
        return result;
    }

    Cases of_other_values(const Schema & schema) {
        Cases result(1);
        for (const JsonValue * value : schema.values) {
            if (is_value(*value)) {
                Cases others;
                add_other_values(*value, others);
                result = product(result, others, schema, "enum", false);
            }
        }
        return result;
    }

    Cases any_of(const Term & term) {
        Cases result;
        for (const Schema * each : term.schema->any_of) {
            append(result, sub(term, *each, false));
        }
        simplify(result, false);
        return result;
    }

    // Each set of alternatives that a value may match, with what they evaluate together.
    Cases any_subset(const Term & term) {
        Cases result;
        for (const Schema * each : term.schema->any_of) {
            const Cases & one  = sub(term, *each, true);
            Cases         more = result.empty() ? Cases() : product(result, one, *term.schema, "anyOf", true);
            append(result, one);
            append(result, more);
        }
        simplify(result, true);
        return result;
    }

    // Alternatives that contradict each other need no negation, which would multiply cases.
    Cases exactly_one(const Term & term, bool tracked, const Cases & base) {
        const Schema & schema = *term.schema;
        Cases          result;
        for (size_t i = 0; i < schema.one_of.size(); i++) {
            const Cases some = product(base, sub(term, *schema.one_of[i], tracked), schema, "oneOf", tracked);
            for (const Case & each : some) {
                Cases alone(1, each);
                for (size_t j = 0; j < schema.one_of.size() && !alone.empty(); j++) {
                    if (j != i && meets(alone, sub(term, *schema.one_of[j], false), schema)) {
                        alone = product(alone, not_sub(term, *schema.one_of[j]), schema, "oneOf", tracked);
                    }
                }
                append(result, alone);
            }
        }
        simplify(result, tracked);
        return result;
    }

    Cases none_of(const Term & term, const std::vector<const Schema *> & schemas, const char * keyword) {
        Cases result(1);
        for (const Schema * each : schemas) {
            result = product(result, not_sub(term, *each), *term.schema, keyword, false);
        }
        return result;
    }

    Cases several_of(const Term & term) {
        const std::vector<const Schema *> & all = term.schema->one_of;
        Cases                               result;
        for (size_t i = 0; i < all.size(); i++) {
            for (size_t j = i + 1; j < all.size(); j++) {
                append(result,
                       product(sub(term, *all[i], false), sub(term, *all[j], false), *term.schema, "oneOf", false));
            }
        }
        return result;
    }

    Cases conditional(const Term & term, bool tracked, const Cases & base) {
        const Schema & schema = *term.schema;
        if (!tracked && schema.then == nullptr && schema.otherwise == nullptr) {
            return base;
        }
        Cases result = product(base, sub(term, *schema.condition, tracked), schema, "if", tracked);
        if (schema.then != nullptr) {
            result = product(result, sub(term, *schema.then, tracked), schema, "then", tracked);
        }
        Cases otherwise = product(base, not_sub(term, *schema.condition), schema, "if", tracked);
        if (schema.otherwise != nullptr) {
            otherwise = product(otherwise, sub(term, *schema.otherwise, tracked), schema, "else", tracked);
        }
        append(result, otherwise);
        simplify(result, tracked);
        return result;
    }
};

}  // namespace pyg
