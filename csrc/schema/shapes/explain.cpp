// Messages for a schema that no value can match.
#include "regex/numbers/numbers.hpp"
#include "schema/shapes/normalizer.hpp"

#include <algorithm>

namespace pyg {

namespace {

class Explanation {
  public:
    explicit Explanation(Normalizer & normalizer) : normalizer_(normalizer) {}

    Failure of_node(NodeId id) {
        const std::vector<Literal> literals = normalizer_.terms.literals(normalizer_.goal_of(id));
        const std::string          place    = literals.empty() ? "#" : normalizer_.terms.place(literals[0]);
        if (std::find(seen_.begin(), seen_.end(), id) != seen_.end()) {
            const std::vector<Literal> & first = normalizer_.terms.literals(normalizer_.goal_of(seen_[0]));
            return fail(PYG_ERR_GRAMMAR, "%s: no value can match, because every one contains another without an end",
                        normalizer_.terms.place(first[0]).c_str());
        }
        seen_.push_back(id);
        for (const Literal literal : literals) {
            if (!is_negated(literal) && literal != ALWAYS) {
                const std::string reason = of_schema(*normalizer_.terms.term(literal).schema);
                if (!reason.empty()) {
                    return fail(PYG_ERR_GRAMMAR, "%s", reason.c_str());
                }
            }
        }
        const Node & node = normalizer_.out.nodes[id];
        if (node.objects.size() + node.arrays.size() == 1) {
            const NodeId needed = node.objects.empty() ? of_array(normalizer_.out.arrays[node.arrays[0]])
                                                       : of_object(normalizer_.out.objects[node.objects[0]]);
            if (needed != UINT32_MAX) {
                return of_node(needed);
            }
        }
        return fail(PYG_ERR_GRAMMAR, "%s: no value can match", place.c_str());
    }

  private:
    Normalizer &        normalizer_;
    std::vector<NodeId> seen_;

    bool is_scalar(NodeId id) {
        const Node & node = normalizer_.out.nodes[id];
        Languages &  l    = normalizer_.out.languages;
        return node.null || node.yes || node.no || !l.is_empty(node.string) || !l.is_empty(node.number);
    }

    // A member that the shape needs and that may be the reason: the first one that is neither a scalar nor optional.
    NodeId of_object(const ObjectShape & shape) {
        for (const Member & each : shape.members) {
            if (each.required && !is_scalar(each.value)) {
                return each.value;
            }
        }
        return UINT32_MAX;
    }

    NodeId of_array(const ArrayShape & shape) {
        for (uint32_t i = 0; i < std::min<size_t>(shape.least, shape.first.size() + 1); i++) {
            const std::vector<ItemAlternative> & all = i < shape.first.size() ? shape.first[i] : shape.rest;
            if (all.size() == 1 && !is_scalar(all[0].value)) {
                return all[0].value;
            }
        }
        return UINT32_MAX;
    }

    static std::string limits(const std::string & place, const char * low, uint32_t least, const char * high,
                              uint32_t most) {
        return least <= most ? ""
                             : place + ": " + low + " is " + std::to_string(least) + " and " + high + " is " +
                                   std::to_string(most) + ", so no value can match";
    }

    std::string of_schema(const Schema & schema) {
        const std::string place = schema.json->pointer();
        for (const std::string & each :
             {(schema.types & TYPE_ARRAY) == 0
                  ? ""
                  : limits(place, "minItems", schema.min_items, "maxItems", schema.max_items),
              (schema.types & TYPE_STRING) == 0
                  ? ""
                  : limits(place, "minLength", schema.min_length, "maxLength", schema.max_length),
              (schema.types & TYPE_OBJECT) == 0
                  ? ""
                  : limits(place, "minProperties", schema.min_members, "maxProperties", schema.max_members),
              of_items(schema, place), of_required(schema, place), of_bounds(schema, place)}) {
            if (!each.empty()) {
                return each;
            }
        }
        return "";
    }

    static bool is_never(const Schema * schema) { return schema != nullptr && schema->is_never; }

    static std::string of_items(const Schema & schema, const std::string & place) {
        if ((schema.types & TYPE_ARRAY) == 0 || !is_never(schema.items) || schema.min_items <= schema.prefix.size()) {
            return "";
        }
        return place + ": minItems is " + std::to_string(schema.min_items) + ", but there can be only " +
               std::to_string(schema.prefix.size()) + " items, so no value can match";
    }

    std::string of_required(const Schema & schema, const std::string & place) {
        if ((schema.types & TYPE_OBJECT) == 0) {
            return "";
        }
        for (const NameId name : schema.required) {
            const auto found = std::find_if(schema.properties.begin(), schema.properties.end(),
                                            [&](const auto & each) { return each.first == name; });
            if (found != schema.properties.end() && is_never(found->second)) {
                return found->second->json->pointer() + ": no value can match, and the member is required";
            }
            if (found == schema.properties.end() && is_never(schema.additional) && schema.patterns.empty()) {
                return place + "/required: \"" + normalizer_.schemas.names.text(name).substr(0, 200) +
                       "\" is required, but no member may have that name";
            }
        }
        return "";
    }

    static std::string of_bounds(const Schema & schema, const std::string & place) {
        const std::string * low  = schema.minimum == nullptr ? schema.above : schema.minimum;
        const std::string * high = schema.maximum == nullptr ? schema.below : schema.maximum;
        if ((schema.types & (TYPE_NUMBER | TYPE_INTEGER)) == 0 || low == nullptr || high == nullptr) {
            return "";
        }
        const int order = compare_numbers(*low, *high);
        if (order > 0) {
            const std::string kind = (schema.types & TYPE_NUMBER) == 0 ? "integer" : "number";
            return place + ": no " + kind + " is between " + *low + " and " + *high;
        }
        return order == 0 && (schema.above != nullptr || schema.below != nullptr) ? place + ": no number can match"
                                                                                  : "";
    }
};

}  // namespace

Failure explain_empty(Normalizer & normalizer) { return Explanation(normalizer).of_node(normalizer.out.root); }

}  // namespace pyg
