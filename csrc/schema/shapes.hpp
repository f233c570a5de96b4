// Graph of the values that a JSON schema allows: the form that the grammar automaton follows.
#pragma once

#include "regex/languages.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

using NodeId = uint32_t;

// A set of JSON values. Each node can be completed: a value that nothing matches has no node, and a recursive one comes
// to an end.
struct Node {
    bool                  null   = false;
    bool                  yes    = false;               // true
    bool                  no     = false;               // false
    Language              string = Languages::NOTHING;  // of the text, without quotes and escapes
    Language              number = Languages::NOTHING;  // of the spelling
    std::vector<uint32_t> objects;                      // indices of shapes: any of them
    std::vector<uint32_t> arrays;
};

struct Member {
    std::string name;  // UTF-8, without escapes
    NodeId      value;
    bool        required;
};

// Members without a fixed name.
struct FreeMembers {
    Language names;
    NodeId   value;
    bool     required = false;  // at least one member is of this class; see SchemaOptions::requires_free_members
};

struct ObjectShape {
    std::vector<Member>      members;  // in the schema's order; names are distinct
    std::vector<FreeMembers> free;  // the names are disjoint from those of `members`, and from each other's unless one
                                    // of the two classes is required: a member then counts for one of them
    uint32_t                 least = 0;  // number of members, named and free
    uint32_t                 most  = UNBOUNDED;
};

// What an item may be; it adds one to the counter of each `contains` in `counts`, a set of bits. Alternatives of one
// position may overlap.
struct ItemAlternative {
    NodeId   value;
    uint32_t counts = 0;
};

struct ItemCounter {
    uint32_t least = 0;
    uint32_t most  = UNBOUNDED;
};

struct ArrayShape {
    std::vector<std::vector<ItemAlternative>> first;      // by position; the array may be shorter
    std::vector<ItemAlternative>              rest;       // empty: nothing comes after `first`
    uint32_t                                  least = 0;  // number of items
    uint32_t                                  most  = UNBOUNDED;
    std::vector<ItemCounter>                  counters;  // of each `contains`
    bool unique = false;  // items differ: their nodes then allow nothing but null, booleans, strings and numbers
};

// The result of compiling a schema. Languages and shapes are referred to by their ids.
struct SchemaShapes {
    Languages                languages;
    std::vector<Node>        nodes;
    std::vector<ObjectShape> objects;
    std::vector<ArrayShape>  arrays;
    NodeId                   root = 0;
    std::vector<std::string> notes;  // what was ignored as the specification says, such as unknown formats
};

}  // namespace pyg
