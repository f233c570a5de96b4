#include "schema/normalizer.hpp"

namespace pyg {

namespace {

constexpr size_t MAX_NODES = 100'000;
constexpr int    LOOKAHEAD = 3;  // arrays and objects inside each other in which contradictions are searched

}  // namespace

Normalizer::Normalizer(const Document & document, const SchemaOptions & options_, SchemaShapes & out_)
    : options(options_), out(out_), schemas(document, options_), terms(schemas), name_sets(schemas.names, out_.languages),
      scalars(terms, out_.languages, options_, out_.notes), objects(terms, scalars, name_sets, *this), arrays(terms, *this) {}

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
    out.nodes[id] = std::move(result);
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
