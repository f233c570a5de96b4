// From goals to nodes: each goal that is reached becomes a node, built from its scalars and its cases.
#pragma once

#include "schema/cases/array_cases.hpp"
#include "schema/cases/object_cases.hpp"

#include <vector>

namespace pyg {

class Normalizer : public Emptiness {
  public:
    Normalizer(const Document & document, const SchemaOptions & options, SchemaShapes & out);

    // Build the graph of a document's root.
    void run();

    bool is_surely_empty(Goal goal) override;

    // --- for shapes -------------------------------------------------------------------------------------------------

    NodeId node(Goal goal);           // built later if it is new
    Goal   scalar_values(Goal goal);  // without arrays and objects

    // --- for messages, before nodes are renumbered ------------------------------------------------------------------

    Goal           goal_of(NodeId node) const { return goals_[node]; }
    const Schema * schema() const { return schema_; }  // of the node that is being built
    std::string    place() const { return schema_->json->pointer(); }

    const SchemaOptions & options;
    SchemaShapes &        out;
    Schemas               schemas;
    Terms                 terms;
    NameSets              name_sets;
    ScalarSets            scalars;
    ObjectCases           objects;
    ArrayCases            arrays;

  private:
    enum class Known : uint8_t { NOT_YET, EMPTY, MAYBE_NOT };

    std::vector<Goal>   goals_;     // by node
    std::vector<NodeId> node_of_;   // by goal; UINT32_MAX: none
    std::vector<Known>  is_empty_;  // by goal
    const Schema *      schema_ = nullptr;
    int                 depth_  = 0;  // of is_surely_empty()
    Literal             scalar_ = ALWAYS;

    void    build(NodeId node);
    bool    is_found_empty(Goal goal);
    uint8_t implied_types(Goal goal);
};

// Add the shapes of a case to those of `ids`. PYG_ERR_GRAMMAR if it cannot be expressed.
void add_object_shapes(Normalizer & normalizer, const ObjectCase & value, std::vector<uint32_t> & ids);
void add_array_shapes(Normalizer & normalizer, const ArrayCase & value, std::vector<uint32_t> & ids);

// Remove nodes, shapes and members that cannot be completed, and what cannot be reached. False if that is the root.
bool remove_uninhabited(SchemaShapes & shapes);

// Why no value can match, by the nodes before any were removed.
Failure explain_empty(Normalizer & normalizer);

}  // namespace pyg
