// States of arrays: what one of a shape has so far, and what may come next.
#pragma once

#include "schema/shapes.hpp"

#include <map>
#include <tuple>
#include <vector>

namespace pyg {

// The states of all arrays of one shape, each stored once.
class ArrayStates {
  public:
    struct State {
        uint32_t              count = 0;   // items so far; those beyond every limit are one
        std::vector<uint32_t> counters;    // of each `contains`, likewise
        uint32_t              values = 0;  // values so far, of ValueSets; only if items are unique

        bool operator<(const State & other) const {
            return std::tie(count, counters, values) < std::tie(other.count, other.counters, other.values);
        }
    };

    explicit ArrayStates(const ArrayShape & shape);

    uint32_t      start();
    const State & state(uint32_t index) const { return states_[index]; }
    bool          may_end(uint32_t state) const;

    // What the next item may be, so that the array can still be completed; empty if none.
    std::vector<ItemAlternative> next(uint32_t state);

    uint32_t after(uint32_t state, const ItemAlternative & item);
    uint32_t with_values(uint32_t state, uint32_t values);

    const ArrayShape & shape() const { return shape_; }
    size_t             n_bytes() const { return n_bytes_; }

  private:
    const std::vector<ItemAlternative> & alternatives(uint32_t count) const;
    bool     counted(const State & state, const ItemAlternative & item, State & after) const;
    bool     can_be_completed(const State & state);
    bool     is_complete(const State & state) const;
    uint32_t id_of(State state);

    const ArrayShape &        shape_;
    const uint32_t            most_counted_;
    std::vector<State>        states_;
    std::map<State, uint32_t> ids_;
    std::map<State, bool>     completable_;  // by states without values
    size_t                    n_bytes_ = 0;
};

}  // namespace pyg
