// Object shapes of cases: members that must exist are chosen, and free names are split into classes.
#include "schema/shapes/normalizer.hpp"

#include <algorithm>

namespace pyg {

namespace {

constexpr size_t MOST_CLASSES = 256;  // of free names
constexpr size_t MOST_LISTED  = 64;   // names of a class that become named members
constexpr size_t MOST_SHAPES  = 4000;

struct FreeClass {
    Language names;
    Goal     goal;
};

// A member without a fixed name that must be there, of a class of free names.
struct FreeRequirement {
    Language names;
    Goal     goal;
};

class ObjectShaper {
  public:
    ObjectShaper(Normalizer & normalizer, std::vector<uint32_t> & ids) : normalizer_(normalizer), ids_(ids) {}

    void add(ObjectCase value, const std::vector<FreeRequirement> & required = {}) {
        normalizer_.terms.budget.spend(value.named.size() + 1, *normalizer_.schema(), "properties");
        if (!settle(value)) {
            return;
        }
        drop_satisfied(value);
        if (value.some.empty()) {
            add_shape(value, required);
            return;
        }
        const MembersRule wanted = value.some.back();
        value.some.pop_back();
        require_one(value, wanted, required);
    }

  private:
    Normalizer &            normalizer_;
    std::vector<uint32_t> & ids_;

    Languages & languages() { return normalizer_.out.languages; }
    bool        concerns(const MembersRule & rule, NameId name) {
        return normalizer_.name_sets.contains(*rule.names, name) == rule.is_inside;
    }

    // Give each named member its goal under all rules. False if a required one is impossible.
    bool settle(ObjectCase & value) {
        uint32_t n_required = 0;
        for (NamedMember & each : value.named) {
            each.goal = normalizer_.objects.effective(each.name, each.goal, value.all);
            if (each.goal == NO_VALUE || !normalizer_.name_sets.contains(value.names, each.name)) {
                if (each.presence == Presence::REQUIRED) {
                    return false;
                }
                each.goal     = NO_VALUE;
                each.presence = Presence::ABSENT;
            }
            n_required += each.presence == Presence::REQUIRED;
        }
        return n_required <= value.most;
    }

    void drop_satisfied(ObjectCase & value) {
        const auto is_satisfied = [&](const MembersRule & wanted) {
            return std::any_of(value.named.begin(), value.named.end(), [&](const NamedMember & each) {
                return each.presence == Presence::REQUIRED && concerns(wanted, each.name) &&
                       normalizer_.terms.implies(each.goal, wanted.value);
            });
        };
        value.some.erase(std::remove_if(value.some.begin(), value.some.end(), is_satisfied), value.some.end());
    }

    // Add the shapes in which a named or a free member is as wanted.
    void require_one(const ObjectCase & value, const MembersRule & wanted,
                     const std::vector<FreeRequirement> & required) {
        for (size_t i = 0; i < value.named.size(); i++) {
            const NamedMember & each = value.named[i];
            const Goal          goal = normalizer_.terms.with(each.goal, wanted.value);
            if (each.presence == Presence::ABSENT || !concerns(wanted, each.name) ||
                normalizer_.is_surely_empty(goal)) {
                continue;
            }
            ObjectCase chosen        = value;
            chosen.named[i].goal     = goal;
            chosen.named[i].presence = Presence::REQUIRED;
            add(std::move(chosen), required);
        }
        require_free(value, wanted, required);
    }

    void require_free(const ObjectCase & value, const MembersRule & wanted,
                      const std::vector<FreeRequirement> & required) {
        const Language               names = normalizer_.name_sets.language(*wanted.names);
        std::vector<FreeRequirement> possible;
        bool                         is_certain = true;  // every free member is as wanted
        for (const FreeClass & each : free_classes(value)) {
            const FreeRequirement found = restricted({each.names, each.goal}, wanted, names);
            const Language        rest  = languages().without(each.names, found.names);
            is_certain                  = is_certain && found.goal == each.goal && languages().is_empty(rest);
            if (is_possible(found)) {
                possible.push_back(found);
            }
        }
        const bool has_optional = std::any_of(value.named.begin(), value.named.end(), [](const NamedMember & each) {
            return each.presence == Presence::OPTIONAL;
        });
        if (possible.empty()) {
            return;
        }
        if (is_certain && !has_optional && required.empty()) {
            add_counted(value);
            return;
        }
        if (!normalizer_.options.requires_free_members) {
            throw fail(PYG_ERR_GRAMMAR,
                       "%s: too many combinations: a grammar cannot express that some other member violates this",
                       value.origin->json->pointer().c_str());
        }
        for (const FreeRequirement & each : possible) {
            add_with(value, required, required.size(), each);
        }
        for (size_t i = 0; i < required.size(); i++) {  // one member may do both
            const FreeRequirement joined = restricted(required[i], wanted, names);
            if (is_possible(joined)) {
                add_with(value, required, i, joined);
            }
        }
    }

    // A free member can be required by the number of members where all others are certain.
    void add_counted(ObjectCase value) {
        const auto n_required =
            static_cast<uint32_t>(std::count_if(value.named.begin(), value.named.end(), [](const NamedMember & each) {
                return each.presence == Presence::REQUIRED;
            }));
        value.least = std::max(value.least, n_required + 1);
        if (value.least <= value.most) {
            add(std::move(value));
        }
    }

    void add_with(const ObjectCase & value, std::vector<FreeRequirement> required, size_t position,
                  const FreeRequirement & one) {
        required.resize(std::max(required.size(), position + 1));
        required[position] = one;
        add(value, required);
    }

    FreeRequirement restricted(const FreeRequirement & from, const MembersRule & wanted, Language names) {
        return {wanted.is_inside ? languages().all_of({from.names, names}) : languages().without(from.names, names),
                normalizer_.terms.with(from.goal, wanted.value)};
    }

    bool is_possible(const FreeRequirement & each) {
        return !normalizer_.is_surely_empty(each.goal) && !languages().is_empty(each.names);
    }

    // --- free names -------------------------------------------------------------------------------------------------

    bool is_closed(const ObjectCase & value) const {
        if (normalizer_.options.known_members_only && value.has_properties && !value.mentions_others) {
            return true;
        }
        return std::any_of(value.all.begin(), value.all.end(), [](const MembersRule & rule) {
            return rule.value == NEVER && !rule.is_inside && rule.names->patterns.empty();
        });
    }

    std::vector<FreeClass> free_classes(const ObjectCase & value) {
        if (is_closed(value) || value.names == Languages::NOTHING) {
            return {};
        }
        std::vector<Language> named;
        for (const NamedMember & each : value.named) {
            named.push_back(normalizer_.name_sets.text(each.name));
        }
        const Language others =
            named.empty() ? value.names : languages().without(value.names, languages().any_of(named));
        std::vector<FreeClass> classes(1, {others, ANY_VALUE});
        for (const bool only_forbidding : {true, false}) {  // these first: they leave less to be split
            for (const MembersRule & rule : value.all) {
                if ((rule.value == NEVER) == only_forbidding) {
                    classes = split(classes, rule, value);
                }
            }
        }
        classes.erase(std::remove_if(classes.begin(), classes.end(),
                                     [&](const FreeClass & each) { return languages().is_empty(each.names); }),
                      classes.end());
        return classes;
    }

    std::vector<FreeClass> split(const std::vector<FreeClass> & classes, const MembersRule & rule,
                                 const ObjectCase & value) {
        // Names that are named are in no class.
        const bool             has_patterns = !rule.names->patterns.empty();
        std::vector<FreeClass> result;
        for (const FreeClass & each : classes) {
            const Goal goal = normalizer_.terms.with(each.goal, rule.value);
            if (goal == each.goal) {
                result.push_back(each);
                continue;
            }
            const Language set =
                has_patterns ? normalizer_.name_sets.language(*rule.names) : languages_of_unnamed(rule, value);
            const Language inside  = set == Languages::NOTHING ? set : languages().all_of({each.names, set});
            const Language outside = set == Languages::NOTHING ? each.names : languages().without(each.names, set);
            add_class(result, rule.is_inside ? inside : outside, goal);
            add_class(result, rule.is_inside ? outside : inside, each.goal);
        }
        if (result.size() > MOST_CLASSES) {
            throw fail(PYG_ERR_GRAMMAR, "%s/patternProperties: too many combinations",
                       normalizer_.terms.place(rule.value).c_str());
        }
        return result;
    }

    // The names of a set that are not named members.
    Language languages_of_unnamed(const MembersRule & rule, const ObjectCase & value) {
        std::vector<Language> texts;
        for (const NameId name : rule.names->names) {
            if (std::none_of(value.named.begin(), value.named.end(),
                             [&](const NamedMember & each) { return each.name == name; })) {
                texts.push_back(normalizer_.name_sets.text(name));
            }
        }
        return texts.empty() ? Languages::NOTHING : languages().any_of(texts);
    }

    void add_class(std::vector<FreeClass> & classes, Language names, Goal goal) {
        if (goal != NO_VALUE && names != Languages::NOTHING && !languages().is_empty(names)) {
            classes.push_back({names, goal});
        }
    }

    // A class of free names, without the names of one that is required if they have the same values.
    void add_free(ObjectShape & shape, const FreeClass & each, const std::vector<FreeRequirement> & required) {
        Language names = each.names;
        if (required.size() == 1 && required[0].goal == each.goal) {
            names = languages().without(names, required[0].names);
            if (languages().is_empty(names)) {
                return;
            }
        }
        shape.free.push_back({names, normalizer_.node(each.goal), false});
    }

    // --- shapes -----------------------------------------------------------------------------------------------------

    void add_shape(const ObjectCase & value, const std::vector<FreeRequirement> & required) {
        ObjectShape shape;
        for (const NamedMember & each : value.named) {
            if (each.presence != Presence::ABSENT) {
                shape.members.push_back({normalizer_.name_sets.names().text(each.name), normalizer_.node(each.goal),
                                         each.presence == Presence::REQUIRED});
            }
        }
        const bool may_be_finite = value.names != Languages::ANYTHING || value.least > shape.members.size();
        for (const FreeClass & each : value.most == 0 ? std::vector<FreeClass>() : free_classes(value)) {
            if (may_be_finite && required.empty() && languages().is_finite(each.names, MOST_LISTED)) {
                for (const std::string & name : languages().some_texts(each.names, MOST_LISTED)) {
                    shape.members.push_back({name, normalizer_.node(each.goal), false});
                }
                continue;
            }
            add_free(shape, each, required);
        }
        for (const FreeRequirement & each : required) {
            shape.free.push_back({each.names, normalizer_.node(each.goal), true});
        }
        shape.least = value.least;
        shape.most  = value.most;
        if (ids_.size() >= MOST_SHAPES) {
            throw fail(PYG_ERR_GRAMMAR, "%s: too many combinations", normalizer_.place().c_str());
        }
        ids_.push_back(static_cast<uint32_t>(normalizer_.out.objects.size()));
        normalizer_.out.objects.push_back(std::move(shape));
    }
};

}  // namespace

void add_object_shapes(Normalizer & normalizer, const ObjectCase & value, std::vector<uint32_t> & ids) {
    ObjectShaper(normalizer, ids).add(value);
}

}  // namespace pyg
