// Cases of objects: conjunctions of what schemas say about members.
#pragma once

#include "schema/cases/expansion.hpp"
#include "schema/cases/name_sets.hpp"

#include <deque>
#include <vector>

namespace pyg {

enum class Presence : uint8_t { OPTIONAL, REQUIRED, ABSENT };

struct NamedMember {
    NameId   name;
    Goal     goal;  // NO_VALUE if it is absent
    Presence presence;
    bool operator==(const NamedMember & o) const { return name == o.name && goal == o.goal && presence == o.presence; }
};

// Members whose names are in a set, or are not.
struct MembersRule {
    const NameSet * names;
    bool            is_inside;
    Literal         value;  // that they have: all of them, or at least one
    bool            operator==(const MembersRule & o) const {
        return names == o.names && is_inside == o.is_inside && value == o.value;
    }
};

struct ObjectCase {
    std::vector<NamedMember> named;  // in the schema's order
    std::vector<MembersRule> all;    // members that match the rule's names have its value
    std::vector<MembersRule> some;   // there is a member that does
    Language                 names = Languages::ANYTHING;
    uint32_t                 least = 0, most = UNBOUNDED;
    bool                     has_properties = false, mentions_others = false;  // for SchemaOptions::known_members_only

    // What is evaluated, if it is tracked.
    std::vector<NameId>   evaluated_names;
    std::vector<Language> evaluated_patterns;
    bool                  evaluates_all = false;

    const Schema * origin = nullptr;  // of `some`, for messages

    bool operator==(const ObjectCase & o) const {
        return least == o.least && most == o.most && names == o.names && has_properties == o.has_properties &&
               mentions_others == o.mentions_others && evaluates_all == o.evaluates_all && named == o.named &&
               all == o.all && some == o.some && evaluated_names == o.evaluated_names &&
               evaluated_patterns == o.evaluated_patterns;
    }
};

// An object in which a member is there, with a value of `goal`, or is not.
ObjectCase with_member(NameId name, Presence presence, Goal goal = ANY_VALUE);

class ObjectCases : public Expansion<ObjectCase> {
  public:
    ObjectCases(Terms & terms, ScalarSets & scalars, NameSets & names, Emptiness & emptiness)
        : Expansion(terms, TYPE_OBJECT), scalars_(scalars), names_(names), emptiness_(emptiness) {}

    std::optional<ObjectCase> both(const ObjectCase & a, const ObjectCase & b) override;

    // The goal of a member, with that of each rule that applies to its name.
    Goal effective(NameId name, Goal goal, const std::vector<MembersRule> & rules);

  protected:
    Cases      own(const Term & term, bool tracked) override;
    void       add_violations(const Term & term, Cases & cases) override;
    bool       is_value(const JsonValue & value) const override { return value.is_object(); }
    ObjectCase of_value(const JsonValue & value) override;
    void       add_other_values(const JsonValue & value, Cases & all) override;
    void       apply_unevaluated(const Term & term, Cases & cases) override;
    void       forget_evaluated(ObjectCase & value) override;
    size_t     size(const ObjectCase & value) const override { return value.named.size() + 4 * value.all.size(); }
    bool has_unevaluated(const Schema & schema) const override { return schema.unevaluated_properties != nullptr; }

  private:
    ScalarSets &                      scalars_;
    NameSets &                        names_;
    Emptiness &                       emptiness_;
    std::deque<std::vector<uint32_t>> indices_;  // for both(), by its depth of recursion
    size_t                            depth_ = 0;

    const NameSet & declared(const Schema & schema);
    const NameSet & names_of(const JsonValue & value);
    Language        allowed_names(const Term & term, bool is_possible);  // or for certain; see Scalars
    ObjectCase      members(const Term & term, bool tracked);
    void            add_dependencies(const Term & term, bool tracked, Cases & cases);
    class Violations;

    void add_violations_of_members(const Term & term, Violations & violations);
    Goal joined_goal(Goal a, Goal b);
    bool contradict(const ObjectCase & a, const ObjectCase & b, const std::vector<uint32_t> & index);
    void merge_named(ObjectCase & result, const ObjectCase & b, const std::vector<uint32_t> & index);
    bool is_impossible(const NamedMember & member, Goal goal);
};

}  // namespace pyg
