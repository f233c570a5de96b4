// Array shapes of cases: each position has an alternative for each set of counters that an item may add to.
#include "schema/shapes/normalizer.hpp"

#include <algorithm>

namespace pyg {

namespace {

constexpr size_t MOST_COUNTERS  = 5;
constexpr size_t MOST_POSITIONS = 20'000;

class ArrayShaper {
  public:
    ArrayShaper(Normalizer & normalizer, std::vector<uint32_t> & ids) : normalizer_(normalizer), ids_(ids) {}

    void add(const ArrayCase & given) {
        ArrayCase value = given;
        if (value.repeats) {
            throw refused(value, "uniqueItems", "a grammar cannot express the negation of this");
        }
        value.unique = value.unique && value.most > 1;
        if (value.unique && has_structured_items(value)) {
            add_with_one_item(value);
            if (!restrict_to_scalars(value)) {
                return;
            }
        }
        add_shape(value);
    }

  private:
    Normalizer &            normalizer_;
    std::vector<uint32_t> & ids_;

    static Failure refused(const ArrayCase & value, const char * keyword, const char * reason) {
        return fail(PYG_ERR_GRAMMAR, "%s/%s: %s", value.origin->json->pointer().c_str(), keyword, reason);
    }

    // --- items that differ ------------------------------------------------------------------------------------------

    bool may_be_structured(Goal goal) {
        return goal != NO_VALUE &&
               (!normalizer_.objects.of_goal(goal).empty() || !normalizer_.arrays.of_goal(goal).empty());
    }

    bool has_structured_items(const ArrayCase & value) {
        return std::any_of(value.first.begin(), value.first.end(),
                           [&](Goal goal) { return may_be_structured(goal); }) ||
               may_be_structured(value.rest);
    }

    // At most one item differs from all others, whatever it is.
    void add_with_one_item(ArrayCase value) {
        if (value.least <= 1) {
            value.most   = 1;
            value.unique = false;
            add_shape(value);
        }
    }

    // False if there must be an array or object.
    bool restrict_to_scalars(ArrayCase & value) {
        normalizer_.out.notes.push_back(value.origin->json->pointer() +
                                        "/uniqueItems: arrays of several items have no objects and arrays among them");
        const uint32_t n_required = std::max(value.least, 1u);
        for (Goal & goal : value.first) {
            goal = normalizer_.scalar_values(goal);
        }
        value.rest = normalizer_.scalar_values(value.rest);
        for (uint32_t i = 0; i < std::min<size_t>(n_required, value.first.size() + 1); i++) {
            if (!normalizer_.is_surely_empty(value.at(i))) {
                continue;
            }
            if (value.least > 1) {
                throw refused(value, "uniqueItems",
                              "a grammar cannot express this for items that are objects or arrays");
            }
            return false;  // arrays without items are among those with at most one
        }
        return true;
    }

    // --- counters ---------------------------------------------------------------------------------------------------

    void add_shape(const ArrayCase & value) {
        std::vector<ItemCount> counts;
        std::copy_if(value.counts.begin(), value.counts.end(), std::back_inserter(counts),
                     [](const ItemCount & each) { return each.least > 0 || each.most != UNBOUNDED; });
        if (counts.size() > MOST_COUNTERS) {
            throw refused(value, "contains", "too many combinations");
        }
        size_t n = value.first.size();
        for (const ItemCount & each : counts) {
            n = std::max<size_t>(n, each.from);
        }
        n = std::min<size_t>(n, value.most);
        if (n > MOST_POSITIONS) {
            throw refused(value, "items", "too many combinations");
        }
        ArrayShape shape;
        for (size_t i = 0; i < n; i++) {
            shape.first.emplace_back();
            add_alternatives(value.at(i), counts, i, 0, 0, shape.first.back());
        }
        if (value.most > n) {
            add_alternatives(value.at(n), counts, n, 0, 0, shape.rest);
        }
        for (const ItemCount & each : counts) {
            shape.counters.push_back({each.least, each.most});
        }
        shape.least  = value.least;
        shape.most   = value.most;
        shape.unique = value.unique;
        ids_.push_back(static_cast<uint32_t>(normalizer_.out.arrays.size()));
        normalizer_.out.arrays.push_back(std::move(shape));
    }

    // Add what an item may be: from counter `next` on, it adds to it or not. An item that could add to a counter
    // without a maximum need not.
    void add_alternatives(Goal goal, const std::vector<ItemCount> & counts, size_t position, size_t next, uint32_t bits,
                          std::vector<ItemAlternative> & all) {
        Terms & terms = normalizer_.terms;
        if (goal == NO_VALUE) {
            return;
        }
        if (next == counts.size()) {
            all.push_back({normalizer_.node(goal), bits});
            return;
        }
        const ItemCount & count = counts[next];
        if (position < count.from) {
            add_alternatives(goal, counts, position, next + 1, bits, all);
            return;
        }
        const Goal counted = terms.with(goal, count.value), others = terms.with(goal, opposite(count.value));
        if (!normalizer_.is_surely_empty(counted)) {
            add_alternatives(counted, counts, position, next + 1, bits | 1u << next, all);
        }
        if (counted != goal && !normalizer_.is_surely_empty(others)) {
            add_alternatives(count.most == UNBOUNDED ? goal : others, counts, position, next + 1, bits, all);
        }
    }
};

}  // namespace

void add_array_shapes(Normalizer & normalizer, const ArrayCase & value, std::vector<uint32_t> & ids) {
    ArrayShaper(normalizer, ids).add(value);
}

}  // namespace pyg
