#include "schema/shapes/normalizer.hpp"

namespace pyg {

namespace {

constexpr size_t MAX_NODES   = 100'000;
constexpr int    MAX_IMPLIED = 8;  // of schemas that apply to the same value, in which types are searched
constexpr int    LOOKAHEAD   = 3;  // arrays and objects inside each other in which contradictions are searched

// The types that a schema's keywords are for; all if it says its types or lists values.
uint8_t implied_types(const Schema & schema, int depth) {
    if (schema.types != TYPE_ANY || schema.has_values) {
        return TYPE_ANY;
    }
    const bool is_object = schema.has_properties || !schema.patterns.empty() || schema.additional ||
                           schema.property_names || schema.unevaluated_properties || !schema.required.empty() ||
                           !schema.dependent_required.empty() || !schema.dependent_schemas.empty() ||
                           schema.min_members > 0 || schema.max_members != UNBOUNDED;
    const bool is_array  = !schema.prefix.empty() || schema.items || schema.unevaluated_items || schema.contains ||
                           schema.min_items > 0 || schema.max_items != UNBOUNDED || schema.unique;
    const bool is_string = schema.pattern || schema.format || schema.min_length > 0 || schema.max_length != UNBOUNDED;
    const bool is_number = schema.minimum || schema.above || schema.maximum || schema.below || schema.multiple_of;
    const int  types     = (is_object ? TYPE_OBJECT : 0) | (is_array ? TYPE_ARRAY : 0) | (is_string ? TYPE_STRING : 0) |
                           (is_number ? TYPE_NUMBER | TYPE_INTEGER : 0);
    auto       result    = static_cast<uint8_t>(types == 0 ? TYPE_ANY : types);
    if (depth < MAX_IMPLIED) {
        for (const Schema * each : schema.all_of) {
            result &= implied_types(*each, depth + 1);
        }
        result &= schema.ref ? implied_types(*schema.ref, depth + 1) : uint8_t{TYPE_ANY};
    }
    return result;
}

bool is_empty(const Node & node) {
    return !node.null && !node.yes && !node.no && node.string == Languages::NOTHING &&
           node.number == Languages::NOTHING && node.objects.empty() && node.arrays.empty();
}

Node of_types(Node node, uint8_t types) {
    node.null   = node.null && (types & TYPE_NULL) != 0;
    node.yes    = node.yes && (types & TYPE_BOOLEAN) != 0;
    node.no     = node.no && (types & TYPE_BOOLEAN) != 0;
    node.string = (types & TYPE_STRING) != 0 ? node.string : Languages::NOTHING;
    node.number = (types & TYPE_NUMBER) != 0 ? node.number : Languages::NOTHING;
    if ((types & TYPE_OBJECT) == 0) {
        node.objects.clear();
    }
    if ((types & TYPE_ARRAY) == 0) {
        node.arrays.clear();
    }
    return node;
}

}  // namespace

Normalizer::Normalizer(const Document & document, const SchemaOptions & options_, SchemaShapes & out_)
    : options(options_), out(out_), schemas(document, options_), terms(schemas),
      name_sets(schemas.names, out_.languages), scalars(terms, out_.languages, options_, out_.notes),
      objects(terms, scalars, name_sets, *this), arrays(terms, *this) {}

void Normalizer::run() {
    const JsonValue & json = schemas.document().root();
    out.root               = node(terms.goal(terms.literal(schemas.at(json), 0)));
    for (NodeId next = 0; next < goals_.size(); next++) {
        build(next);
    }
}

NodeId Normalizer::node(Goal goal) {
    if (node_of_.size() <= goal) {
        node_of_.resize(goal * 2 + 64, UINT32_MAX);
    }
    if (node_of_[goal] == UINT32_MAX) {
        if (goals_.size() >= MAX_NODES) {
            throw fail(PYG_ERR_GRAMMAR, "%s: too many combinations", terms.place(terms.literals(goal)[0]).c_str());
        }
        node_of_[goal] = static_cast<NodeId>(goals_.size());
        goals_.push_back(goal);
        out.nodes.emplace_back();
    }
    return node_of_[goal];
}

void Normalizer::build(NodeId id) {
    const Goal goal = goals_[id];
    Node       result;
    schema_ = goal <= NO_VALUE ? &schemas.at(schemas.document().root()) : terms.term(terms.literals(goal)[0]).schema;
    if (goal != NO_VALUE) {
        const Scalars found = scalars.of_goal(goal);
        result.null         = found.null;
        result.yes          = found.yes;
        result.no           = found.no;
        result.string       = found.string;
        result.number       = scalars.numbers(found);
        for (const ObjectCase & each : objects.of_goal(goal)) {
            add_object_shapes(*this, each, result.objects);
        }
        for (const ArrayCase & each : arrays.of_goal(goal)) {
            add_array_shapes(*this, each, result.arrays);
        }
    }
    const Node implied = of_types(result, implied_types(goal));
    out.nodes[id]      = is_empty(implied) ? std::move(result) : implied;
}

// Only fewer values than the schemas allow: so negated ones, of which fewer would be more, say nothing.
uint8_t Normalizer::implied_types(Goal goal) {
    uint8_t types = TYPE_ANY;
    if (options.keywords_imply_types && goal > NO_VALUE) {
        for (const Literal literal : terms.literals(goal)) {
            if (literal > NEVER && !is_negated(literal)) {
                types &= pyg::implied_types(*terms.term(literal).schema, 0);
            }
        }
    }
    return types;
}

Goal Normalizer::scalar_values(Goal goal) {
    if (scalar_ == ALWAYS) {
        Schema & schema = schemas.synthetic(schemas.document().root());
        schema.types    = TYPE_ANY & ~(TYPE_OBJECT | TYPE_ARRAY);
        scalar_         = terms.literal(schema, 0);
    }
    return terms.with(goal, scalar_);
}

bool Normalizer::is_surely_empty(Goal goal) {
    if (goal == ANY_VALUE || goal == NO_VALUE) {
        return goal == NO_VALUE;
    }
    if (is_empty_.size() <= goal) {
        is_empty_.resize(goal * 2 + 64, Known::NOT_YET);
    }
    if (is_empty_[goal] == Known::NOT_YET) {
        if (depth_ >= LOOKAHEAD) {
            return false;
        }
        depth_++;
        const bool found = is_found_empty(goal);
        depth_--;
        is_empty_[goal] = found ? Known::EMPTY : Known::MAYBE_NOT;
    }
    return is_empty_[goal] == Known::EMPTY;
}

// What cannot be decided here, such as schemas that are being expanded, is left to the nodes.
bool Normalizer::is_found_empty(Goal goal) {
    try {
        return scalars.is_empty(scalars.of_goal(goal)) && objects.of_goal(goal).empty() && arrays.of_goal(goal).empty();
    } catch (const Failure &) {
        return false;
    }
}

}  // namespace pyg
