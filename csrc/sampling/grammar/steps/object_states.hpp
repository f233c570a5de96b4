// States of objects: what one of a shape has so far, and what may come next.
#pragma once

#include "schema/shapes.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace pyg {

// Names of a shape's members, as a trie of code points. Node 0 is the root.
class NameTrie {
  public:
    static constexpr uint32_t NONE = UINT32_MAX;

    explicit NameTrie(const std::vector<Member> & members);

    struct Node {
        std::vector<std::pair<uint32_t, uint32_t>> children;  // (code point, node), sorted
        uint32_t                                   member = NONE;
        std::vector<uint32_t>                      below;  // members whose names begin so
    };

    const Node & node(uint32_t index) const { return nodes_[index]; }
    uint32_t     after(uint32_t index, uint32_t code_point) const;  // NONE if no name begins so

  private:
    std::vector<Node> nodes_;
};

// The states of all objects of one shape, each stored once.
class ObjectStates {
  public:
    struct State {
        std::vector<bool> closed;     // members that came, and in declared order those before them
        uint32_t          count = 0;  // members so far; counted only if the shape limits them
        uint32_t          names = 0;  // free names so far, of ValueSets; kept only if they must differ
        std::vector<bool> missing;    // required classes of free members that have not come

        // Derived:
        bool              may_end = false;
        std::vector<bool> free_next;         // classes of free members that may come next
        bool              any_next = false;  // a member, of any name
        std::vector<bool> next;              // members that may come next
    };

    ObjectStates(const ObjectShape & shape, bool any_order);

    uint32_t      start();
    uint32_t      after_member(uint32_t state, uint32_t member);
    uint32_t      after_free(uint32_t state, uint32_t free, uint32_t names);  // names: with this one, if they are kept
    const State & state(uint32_t index) const { return states_[index]; }

    const ObjectShape & shape() const { return shape_; }
    const NameTrie &    names() const { return names_; }

    // True if free names are kept and must differ: of equal ones only the last counts, towards the least number of
    // members or as a member of a required class.
    bool keeps_names() const { return keeps_names_; }

    // True if a name that begins like the trie's node may come next.
    bool may_continue(uint32_t state, uint32_t trie_node) const;

    size_t n_bytes() const { return n_bytes_; }

  private:
    uint32_t id_of(State state);
    void     derive(State & state) const;
    uint32_t counted(uint32_t count) const;
    bool     leaves_room(const State & state, size_t required_left) const;

    const ObjectShape & shape_;
    const bool          any_order_;
    const NameTrie      names_;
    const bool          requires_free_;
    const bool          keeps_names_;

    std::vector<State>                                                                       states_;
    std::map<std::tuple<std::vector<bool>, std::vector<bool>, uint32_t, uint32_t>, uint32_t> ids_;
    size_t                                                                                   n_bytes_ = 0;
};

}  // namespace pyg
