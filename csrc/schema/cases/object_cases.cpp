#include "schema/cases/object_cases.hpp"

#include <algorithm>

namespace pyg {

namespace {

template <class T>
void add_each(std::vector<T> & all, const std::vector<T> & more) {
    for (const T & each : more) {
        if (std::find(all.begin(), all.end(), each) == all.end()) {
            all.push_back(each);
        }
    }
}

template <class T>
void unite(std::vector<T> & all, const std::vector<T> & more) {
    std::vector<T> result;
    std::set_union(all.begin(), all.end(), more.begin(), more.end(), std::back_inserter(result));
    all = std::move(result);
}

}  // namespace

ObjectCase with_member(NameId name, Presence presence, Goal goal) {
    ObjectCase result;
    result.named.push_back({name, presence == Presence::ABSENT ? NO_VALUE : goal, presence});
    if (presence == Presence::REQUIRED) {
        result.least = 1;
    }
    return result;
}

// --- names ----------------------------------------------------------------------------------------------------------

// The names that properties and patternProperties speak of.
const NameSet & ObjectCases::declared(const Schema & schema) {
    std::vector<NameId>   names;
    std::vector<Language> patterns;
    for (const auto & [name, value] : schema.properties) {
        names.push_back(name);
    }
    for (const auto & [pattern, value] : schema.patterns) {
        const NameSet & set = names_.pattern(schema, *pattern);
        patterns.insert(patterns.end(), set.patterns.begin(), set.patterns.end());
    }
    return names_.of(std::move(names), std::move(patterns));
}

const NameSet & ObjectCases::names_of(const JsonValue & value) {
    std::vector<NameId> names;
    for (const std::string & name : value.names) {
        names.push_back(terms_.schemas().names.id(name));
    }
    return names_.of(std::move(names), {});
}

Language ObjectCases::allowed_names(const Term & term, bool is_possible) {
    if (term.schema->property_names == nullptr) {
        return Languages::ANYTHING;
    }
    const Scalars & names = scalars_.of(terms_.below(term, *term.schema->property_names));
    return is_possible ? names.possible : names.string;
}

Goal ObjectCases::effective(NameId name, Goal goal, const std::vector<MembersRule> & rules) {
    for (const MembersRule & rule : rules) {
        if (goal != NO_VALUE && !terms_.implies(goal, rule.value) &&
            names_.contains(*rule.names, name) == rule.is_inside) {
            goal = terms_.with(goal, rule.value);
        }
    }
    return goal;
}

// --- what a schema says ---------------------------------------------------------------------------------------------

ObjectCases::Cases ObjectCases::own(const Term & term, bool tracked) {
    Cases result;
    if (std::optional<ObjectCase> joined = both(members(term, tracked), ObjectCase())) {
        result.push_back(std::move(*joined));
        add_dependencies(term, tracked, result);
    }
    return result;
}

ObjectCase ObjectCases::members(const Term & term, bool tracked) {
    const Schema & schema = *term.schema;
    ObjectCase     result;
    result.has_properties        = schema.has_properties || !schema.patterns.empty();
    result.mentions_others       = schema.additional != nullptr || schema.unevaluated_properties != nullptr;
    std::vector<NameId> required = schema.required;
    std::sort(required.begin(), required.end());
    for (const auto & [name, value] : schema.properties) {
        const bool is_required = std::binary_search(required.begin(), required.end(), name);
        result.named.push_back(
            {name, terms_.goal(terms_.below(term, *value)), is_required ? Presence::REQUIRED : Presence::OPTIONAL});
    }
    const NameSet & declared_names = declared(schema);
    for (const NameId name : schema.required) {
        const bool is_new =
            !std::binary_search(declared_names.names.begin(), declared_names.names.end(), name) &&
            std::none_of(result.named.begin() + static_cast<std::ptrdiff_t>(schema.properties.size()),
                         result.named.end(), [&](const NamedMember & each) { return each.name == name; });
        if (is_new) {
            result.named.push_back({name, ANY_VALUE, Presence::REQUIRED});
        }
    }
    for (const auto & [pattern, value] : schema.patterns) {
        const Literal literal = terms_.below(term, *value);
        if (literal != ALWAYS) {
            result.all.push_back({&names_.pattern(schema, *pattern), true, literal});
        }
    }
    const Literal others = schema.additional == nullptr ? ALWAYS : terms_.below(term, *schema.additional);
    if (others != ALWAYS) {
        result.all.push_back({&declared_names, false, others});
    }
    result.names = allowed_names(term, false);
    result.least = schema.min_members;
    result.most  = result.names == Languages::NOTHING ? 0 : schema.max_members;
    if (tracked) {
        result.evaluated_names    = declared_names.names;
        result.evaluated_patterns = declared_names.patterns;
        result.evaluates_all      = schema.additional != nullptr;
    }
    return result;
}

void ObjectCases::add_dependencies(const Term & term, bool tracked, Cases & cases) {
    const Schema & schema = *term.schema;
    for (const auto & [name, required] : schema.dependent_required) {
        ObjectCase present;
        for (const NameId each : required) {
            std::optional<ObjectCase> joined = both(present, with_member(each, Presence::REQUIRED));
            present                          = joined ? *joined : present;
        }
        cases = product(cases, {with_member(name, Presence::ABSENT), present}, schema, "dependentRequired", tracked);
    }
    for (const auto & [name, value] : schema.dependent_schemas) {
        Cases either = this->cases(terms_.alongside(term, *value), tracked);
        if (tracked) {  // the schema evaluates only where it applies
            either = product(either, {with_member(name, Presence::REQUIRED)}, schema, "dependentSchemas", true);
        }
        either.push_back(with_member(name, Presence::ABSENT));
        cases = product(cases, either, schema, "dependentSchemas", tracked);
    }
}

void ObjectCases::apply_unevaluated(const Term & term, Cases & cases) {
    if (term.schema->unevaluated_properties == nullptr) {
        return;
    }
    const Literal literal = terms_.below(term, *term.schema->unevaluated_properties);
    Cases         result;
    for (ObjectCase & each : cases) {
        if (!each.evaluates_all && literal != ALWAYS) {
            ObjectCase rule;
            rule.all.push_back({&names_.of(each.evaluated_names, each.evaluated_patterns), false, literal});
            std::optional<ObjectCase> joined = both(each, rule);
            if (!joined) {
                continue;
            }
            each = std::move(*joined);
        }
        each.evaluates_all = true;
        result.push_back(std::move(each));
    }
    cases = std::move(result);
}

void ObjectCases::forget_evaluated(ObjectCase & value) {
    value.evaluated_names.clear();
    value.evaluated_patterns.clear();
    value.evaluates_all = false;
}

ObjectCase ObjectCases::of_value(const JsonValue & value) {
    ObjectCase result;
    for (size_t i = 0; i < value.names.size(); i++) {
        const Literal literal = terms_.literal(terms_.schemas().constant(value.items[i]), 0);
        result.named.push_back({terms_.schemas().names.id(value.names[i]), terms_.goal(literal), Presence::REQUIRED});
    }
    result.all.push_back({&names_of(value), false, NEVER});
    result.mentions_others = true;
    result.least           = static_cast<uint32_t>(value.names.size());
    return result;
}

// --- conjunctions ---------------------------------------------------------------------------------------------------

bool ObjectCases::is_impossible(const NamedMember & member, Goal goal) {
    return goal == NO_VALUE || (goal != member.goal && emptiness_.is_surely_empty(goal));
}

// True if a member that one of them requires is impossible with the other. `index`: by name, the position in `a` + 1.
bool ObjectCases::contradict(const ObjectCase & a, const ObjectCase & b, const std::vector<uint32_t> & index) {
    const auto clashes = [&](const NamedMember & member, Goal goal, const ObjectCase & other) {
        goal = effective(member.name, effective(member.name, goal, a.all), b.all);
        return !names_.contains(other.names, member.name) || is_impossible(member, goal);
    };
    std::vector<bool> is_common(a.named.size());
    for (const NamedMember & each : b.named) {
        const uint32_t at = index[each.name];
        if (at == 0) {
            if (each.presence == Presence::REQUIRED && clashes(each, each.goal, a)) {
                return true;
            }
            continue;
        }
        const NamedMember & own = a.named[at - 1];
        is_common[at - 1]       = true;
        if (own.presence == Presence::REQUIRED || each.presence == Presence::REQUIRED) {
            if (clashes(own, joined_goal(own.goal, each.goal), b) || !names_.contains(a.names, own.name)) {
                return true;
            }
        }
    }
    for (size_t i = 0; i < a.named.size(); i++) {
        if (!is_common[i] && a.named[i].presence == Presence::REQUIRED && clashes(a.named[i], a.named[i].goal, b)) {
            return true;
        }
    }
    return false;
}

// Both goals, without negations that the rest implies.
Goal ObjectCases::joined_goal(Goal a, Goal b) {
    const auto implies = [&](Goal goal, Goal other) {
        const std::vector<Literal> & literals = terms_.literals(other);
        return literals.size() == 1 && is_negated(literals[0]) && literals[0] != NEVER && goal != ANY_VALUE &&
               emptiness_.is_surely_empty(terms_.with(goal, opposite(literals[0])));
    };
    return implies(a, b) ? a : implies(b, a) ? b : terms_.both(a, b);
}

// Merge the named members of `b` into those of `result`, a copy of `a`.
void ObjectCases::merge_named(ObjectCase & result, const ObjectCase & b, const std::vector<uint32_t> & index) {
    for (const NamedMember & each : b.named) {
        if (index[each.name] == 0) {
            result.named.push_back(each);
            continue;
        }
        NamedMember & own = result.named[index[each.name] - 1];
        own.goal          = joined_goal(own.goal, each.goal);
        own.presence      = std::max(own.presence, each.presence);
    }
    uint32_t n_required = 0;
    for (NamedMember & each : result.named) {
        if (each.goal == NO_VALUE) {
            each.presence = Presence::ABSENT;
        }
        n_required += each.presence == Presence::REQUIRED;
    }
    result.least = std::max(result.least, n_required);
}

std::optional<ObjectCase> ObjectCases::both(const ObjectCase & a, const ObjectCase & b) {
    if (std::max(a.least, b.least) > std::min(a.most, b.most)) {
        return std::nullopt;
    }
    if (indices_.size() <= depth_) {  // emptiness may come back here
        indices_.emplace_back();
    }
    std::vector<uint32_t> & index = indices_[depth_];
    index.resize(std::max(index.size(), terms_.schemas().names.size()));
    for (size_t i = 0; i < a.named.size(); i++) {
        index[a.named[i].name] = static_cast<uint32_t>(i + 1);
    }
    struct Cleanup {
        std::vector<uint32_t> & index;
        const ObjectCase &      a;
        size_t &                depth;
        ~Cleanup() {
            depth--;
            for (const NamedMember & each : a.named) {
                index[each.name] = 0;
            }
        }
    } const cleanup{index, a, ++depth_};
    if (contradict(a, b, index)) {
        return std::nullopt;
    }
    ObjectCase result = a;
    result.least      = std::max(a.least, b.least);
    result.most       = std::min(a.most, b.most);
    merge_named(result, b, index);
    if (result.least > result.most) {
        return std::nullopt;
    }
    if (b.names != Languages::ANYTHING && b.names != a.names) {
        result.names = a.names == Languages::ANYTHING ? b.names : names_.languages().all_of({a.names, b.names});
    }
    add_each(result.all, b.all);
    add_each(result.some, b.some);
    result.origin          = a.origin == nullptr ? b.origin : a.origin;
    result.has_properties  = a.has_properties || b.has_properties;
    result.mentions_others = a.mentions_others || b.mentions_others;
    result.evaluates_all   = a.evaluates_all || b.evaluates_all;
    unite(result.evaluated_names, b.evaluated_names);
    unite(result.evaluated_patterns, b.evaluated_patterns);
    return result;
}

}  // namespace pyg
