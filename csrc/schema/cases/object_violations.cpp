// Cases of objects that violate a schema.
#include "schema/cases/object_cases.hpp"

namespace pyg {

// Collects what violates a schema first: each case satisfies all that came before. Cases of several negations, such as
// those of a oneOf's alternatives, then contradict each other instead of multiplying.
class ObjectCases::Violations {
  public:
    Violations(ObjectCases & cases, Cases & out) : cases_(cases), out_(out) {}

    // One way to violate it, and its opposite.
    void add(const ObjectCase & violating, const ObjectCase & satisfying) {
        if (!passed_) {
            return;
        }
        if (std::optional<ObjectCase> joined = cases_.both(*passed_, violating)) {
            out_.push_back(std::move(*joined));
        }
        passed_ = cases_.both(*passed_, satisfying);
    }

    const std::optional<ObjectCase> & passed() const { return passed_; }

  private:
    ObjectCases &             cases_;
    Cases &                   out_;
    std::optional<ObjectCase> passed_ = ObjectCase();
};

void ObjectCases::add_violations(const Term & term, Cases & cases) {
    const Schema & schema = *term.schema;
    Violations     violations(*this, cases);
    for (const NameId name : schema.required) {
        violations.add(with_member(name, Presence::ABSENT), with_member(name, Presence::REQUIRED));
    }
    add_violations_of_members(term, violations);
    ObjectCase few, many, not_few, not_many;
    if (schema.min_members > 0) {
        few.most      = schema.min_members - 1;
        not_few.least = schema.min_members;
        violations.add(few, not_few);
    }
    if (schema.max_members != UNBOUNDED) {
        many.least    = schema.max_members + 1;
        not_many.most = schema.max_members;
        violations.add(many, not_many);
    }
    const Cases passed = violations.passed() ? Cases(1, *violations.passed()) : Cases();
    for (const auto & [name, required] : schema.dependent_required) {
        for (const NameId each : required) {
            const auto joined = both(with_member(name, Presence::REQUIRED), with_member(each, Presence::ABSENT));
            if (joined) {
                append(cases, product(passed, {*joined}, schema, "dependentRequired", false));
            }
        }
    }
    for (const auto & [name, value] : schema.dependent_schemas) {
        const Cases & others = this->cases(opposite(terms_.alongside(term, *value)), false);
        const Cases with = product(passed, {with_member(name, Presence::REQUIRED)}, schema, "dependentSchemas", false);
        append(cases, product(with, others, schema, "dependentSchemas", false));
    }
    if (schema.unevaluated_properties != nullptr && terms_.below(term, *schema.unevaluated_properties) != ALWAYS) {
        throw fail(PYG_ERR_GRAMMAR, "%s/unevaluatedProperties: a grammar cannot express the negation of this",
                   schema.json->pointer().c_str());
    }
}

void ObjectCases::add_violations_of_members(const Term & term, Violations & violations) {
    const Schema & schema = *term.schema;
    for (const bool with_values : {true, false}) {  // these tell alternatives apart
        for (const auto & [name, value] : schema.properties) {
            const Literal literal = terms_.below(term, *value);
            if (literal != ALWAYS && terms_.has_values(literal) == with_values) {
                violations.add(with_member(name, Presence::REQUIRED, terms_.goal(opposite(literal))),
                               with_member(name, Presence::OPTIONAL, terms_.goal(literal)));
            }
        }
    }
    const auto add_some = [&](const NameSet & names, bool is_inside, Literal literal) {
        if (literal != ALWAYS) {
            ObjectCase some, none;
            some.some.push_back({&names, is_inside, opposite(literal)});
            some.least  = 1;
            some.origin = &schema;
            none.all.push_back({&names, is_inside, literal});
            violations.add(some, none);
        }
    };
    for (const auto & [pattern, value] : schema.patterns) {
        add_some(names_.pattern(schema, *pattern), true, terms_.below(term, *value));
    }
    if (schema.additional != nullptr) {
        add_some(declared(schema), false, terms_.below(term, *schema.additional));
    }
    const Language names = allowed_names(term, true);
    if (names != Languages::ANYTHING) {
        add_some(names_.of({}, {names}), false, NEVER);
    }
}

void ObjectCases::add_other_values(const JsonValue & value, Cases & all) {
    for (size_t i = 0; i < value.names.size(); i++) {
        const NameId  name    = terms_.schemas().names.id(value.names[i]);
        const Literal literal = terms_.literal(terms_.schemas().constant(value.items[i]), 0);
        all.push_back(with_member(name, Presence::ABSENT));
        all.push_back(with_member(name, Presence::REQUIRED, terms_.goal(opposite(literal))));
    }
    ObjectCase more;
    more.some.push_back({&names_of(value), false, ALWAYS});
    more.least  = 1;
    more.origin = &terms_.schemas().constant(value);
    all.push_back(std::move(more));
}

}  // namespace pyg
