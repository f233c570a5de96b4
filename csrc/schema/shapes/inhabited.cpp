// Removal of what cannot be completed: nodes that no finite value matches, shapes that need one, and members, items and
// maxima beyond reach.
#include "boundary/guard.hpp"
#include "schema/shapes/normalizer.hpp"

#include <algorithm>
#include <set>

namespace pyg {

namespace {

constexpr size_t MOST_COUNTER_STATES = 20'000;
constexpr size_t MOST_DISTINCT       = 1000;  // values that are counted, of items that differ

class Pruner {
  public:
    explicit Pruner(SchemaShapes & shapes)
        : shapes_(shapes), lives_(shapes.nodes.size()), object_lives_(shapes.objects.size()),
          array_lives_(shapes.arrays.size()) {}

    bool run() {
        for (NodeId id = 0; id < lives_.size(); id++) {
            const Node & node = shapes_.nodes[id];
            lives_[id]        = node.null || node.yes || node.no || !shapes_.languages.is_empty(node.string) ||
                                !shapes_.languages.is_empty(node.number);
        }
        while (grow()) {}
        if (!lives_[shapes_.root]) {
            return false;
        }
        for (size_t i = 0; i < shapes_.objects.size(); i++) {
            if (object_lives_[i]) {
                prune(shapes_.objects[i]);
            }
        }
        for (size_t i = 0; i < shapes_.arrays.size(); i++) {
            if (array_lives_[i]) {
                prune(shapes_.arrays[i]);
            }
        }
        compact();
        return true;
    }

  private:
    SchemaShapes &    shapes_;
    std::vector<bool> lives_, object_lives_, array_lives_;

    // One pass; nodes that are referred to mostly have higher numbers. True if more was found to be completed.
    bool grow() {
        bool has_grown = false;
        for (NodeId id = static_cast<NodeId>(lives_.size()); id-- > 0;) {
            const Node & node = shapes_.nodes[id];
            for (const uint32_t each : node.objects) {
                if (!object_lives_[each] && lives(shapes_.objects[each])) {
                    object_lives_[each] = has_grown = true;
                    lives_[id]                      = true;
                }
            }
            for (const uint32_t each : node.arrays) {
                if (!array_lives_[each] && lives(shapes_.arrays[each])) {
                    array_lives_[each] = has_grown = true;
                    lives_[id]                     = true;
                }
            }
        }
        return has_grown;
    }

    // --- objects ----------------------------------------------------------------------------------------------------

    bool lives(const ObjectShape & shape) const {
        uint32_t n_required = 0, n_possible = 0;
        for (const Member & each : shape.members) {
            if (each.required && !lives_[each.value]) {
                return false;
            }
            n_required += each.required;
            n_possible += lives_[each.value];
        }
        for (const FreeMembers & each : shape.free) {
            if (each.required && !lives_[each.value]) {
                return false;
            }
            n_required += each.required;
        }
        const bool has_free = std::any_of(shape.free.begin(), shape.free.end(),
                                          [&](const FreeMembers & each) { return lives_[each.value]; });
        return n_required <= shape.most && shape.least <= shape.most && (has_free || n_possible >= shape.least);
    }

    void prune(ObjectShape & shape) {
        const auto is_dead = [&](const auto & each) { return !lives_[each.value]; };
        shape.members.erase(std::remove_if(shape.members.begin(), shape.members.end(), is_dead), shape.members.end());
        shape.free.erase(std::remove_if(shape.free.begin(), shape.free.end(), is_dead), shape.free.end());
        const auto n_members = static_cast<uint32_t>(shape.members.size());
        const auto n_required =
            static_cast<uint32_t>(std::count_if(shape.members.begin(), shape.members.end(),
                                                [](const Member & each) { return each.required; }) +
                                  std::count_if(shape.free.begin(), shape.free.end(),
                                                [](const FreeMembers & each) { return each.required; }));
        if (n_required == shape.most) {
            shape.free.erase(std::remove_if(shape.free.begin(), shape.free.end(),
                                            [](const FreeMembers & each) { return !each.required; }),
                             shape.free.end());
            shape.members.erase(std::remove_if(shape.members.begin(), shape.members.end(),
                                               [](const Member & each) { return !each.required; }),
                                shape.members.end());
        }
        if (shape.free.empty() && shape.most >= n_members) {
            shape.most = UNBOUNDED;  // no limit beyond the members that there are
        }
        shape.least = shape.least <= n_required ? 0 : shape.least;
    }

    // --- arrays -----------------------------------------------------------------------------------------------------

    bool has_living(const std::vector<ItemAlternative> & alternatives) const {
        return std::any_of(alternatives.begin(), alternatives.end(),
                           [&](const ItemAlternative & each) { return lives_[each.value]; });
    }

    // Number of items that there can be.
    uint32_t reach(const ArrayShape & shape) const {
        for (uint32_t i = 0; i < shape.first.size(); i++) {
            if (!has_living(shape.first[i])) {
                return std::min(i, shape.most);
            }
        }
        const uint32_t most =
            has_living(shape.rest) ? shape.most : std::min(shape.most, static_cast<uint32_t>(shape.first.size()));
        return shape.unique ? std::min(most, n_distinct(shape)) : most;
    }

    bool lives(const ArrayShape & shape) const {
        const uint32_t most = reach(shape);
        return shape.least <= most && (shape.counters.empty() || can_count(shape, most));
    }

    // Search for a number of items that satisfies all counters. Values beyond a counter's minimum only matter for
    // maxima.
    bool can_count(const ArrayShape & shape, uint32_t most) const {
        using State                = std::pair<uint32_t, std::vector<uint32_t>>;  // number of items, counters
        const auto         n_first = static_cast<uint32_t>(shape.first.size());
        const uint32_t     enough  = std::max(n_first, shape.least);
        std::set<State>    seen;
        std::vector<State> pending(1, {0, std::vector<uint32_t>(shape.counters.size())});
        while (!pending.empty()) {
            const State state = pending.back();
            pending.pop_back();
            if (!seen.insert(state).second) {
                continue;
            }
            if (seen.size() > MOST_COUNTER_STATES) {
                throw fail(PYG_ERR_GRAMMAR, "#: contains: too many combinations");
            }
            if (is_complete(shape, state.first, state.second)) {
                return true;
            }
            if (state.first >= most) {
                continue;
            }
            for (const ItemAlternative & each : state.first < n_first ? shape.first[state.first] : shape.rest) {
                State next = state;
                // The number of items is limited by `most` even where it is not counted any further.
                next.first = most == UNBOUNDED ? std::min(state.first + 1, enough) : state.first + 1;
                if (lives_[each.value] && count(shape, each.counts, next.second)) {
                    pending.push_back(std::move(next));
                }
            }
        }
        return false;
    }

    static bool is_complete(const ArrayShape & shape, uint32_t n, const std::vector<uint32_t> & counted) {
        for (size_t i = 0; i < counted.size(); i++) {
            if (counted[i] < shape.counters[i].least) {
                return false;
            }
        }
        return n >= shape.least;
    }

    static bool count(const ArrayShape & shape, uint32_t bits, std::vector<uint32_t> & counted) {
        for (size_t i = 0; i < counted.size(); i++) {
            const ItemCounter & counter = shape.counters[i];
            counted[i] += bits >> i & 1;
            if (counted[i] > counter.most) {
                return false;
            }
            counted[i] = counter.most == UNBOUNDED ? std::min(counted[i], counter.least) : counted[i];
        }
        return true;
    }

    // Number of different values that items can have, which are scalars; UNBOUNDED if there are many.
    uint32_t n_distinct(const ArrayShape & shape) const {
        std::vector<Language> strings, numbers;
        bool                  null = false, yes = false, no = false;
        const auto            add = [&](const std::vector<ItemAlternative> & alternatives) {
            for (const ItemAlternative & each : alternatives) {
                const Node & node = shapes_.nodes[each.value];
                null              = null || node.null;
                yes               = yes || node.yes;
                no                = no || node.no;
                strings.push_back(node.string);
                numbers.push_back(node.number);
            }
        };
        std::for_each(shape.first.begin(), shape.first.end(), add);
        add(shape.rest);
        const uint32_t n = n_texts(shapes_.languages.any_of(strings));
        const uint32_t m =
            n == UNBOUNDED
                ? n
                : n_texts(shapes_.languages.all_of({shapes_.languages.any_of(numbers), shortest_spellings()}));
        return m == UNBOUNDED ? m : n + m + null + yes + no;
    }

    uint32_t n_texts(Language language) const {
        if (!shapes_.languages.is_finite(language, MOST_DISTINCT)) {
            return UNBOUNDED;
        }
        return static_cast<uint32_t>(shapes_.languages.some_texts(language, MOST_DISTINCT).size());
    }

    // One spelling of each number without an exponent.
    Language shortest_spellings() const {
        Languages &    l        = shapes_.languages;
        const Language digits   = l.repeat(l.chars(CharSet{{{'0', '9'}}}), 0, UNBOUNDED);
        const Language last     = l.chars(CharSet{{{'1', '9'}}});
        const Language whole    = l.any_of({l.text("0"), l.concat(last, digits)});
        const Language fraction = l.concat(l.text("."), l.concat(digits, last));
        const Language all      = l.concat(l.repeat(l.text("-"), 0, 1), l.concat(whole, l.repeat(fraction, 0, 1)));
        return l.without(all, l.text("-0"));
    }

    void prune(ArrayShape & shape) {
        shape.most         = reach(shape);
        const auto is_dead = [&](const ItemAlternative & each) { return !lives_[each.value]; };
        const auto clean   = [&](std::vector<ItemAlternative> & all) {
            all.erase(std::remove_if(all.begin(), all.end(), is_dead), all.end());
        };
        std::for_each(shape.first.begin(), shape.first.end(), clean);
        clean(shape.rest);
        if (shape.most <= shape.first.size()) {
            shape.first.resize(shape.most);
            shape.rest.clear();
        }
        if (shape.rest.empty()) {
            shape.most = static_cast<uint32_t>(shape.first.size());
        }
    }

    // --- numbering --------------------------------------------------------------------------------------------------

    // Keep what can be reached from the root, in that order.
    void compact() {
        std::vector<Node>        nodes;
        std::vector<ObjectShape> objects;
        std::vector<ArrayShape>  arrays;
        std::vector<NodeId>      order(1, shapes_.root), number(shapes_.nodes.size(), UINT32_MAX);
        number[shapes_.root] = 0;
        const auto renumber  = [&](NodeId & id) {
            if (number[id] == UINT32_MAX) {
                number[id] = static_cast<NodeId>(order.size());
                order.push_back(id);
            }
            id = number[id];
        };
        for (size_t i = 0; i < order.size(); i++) {
            Node node   = std::move(shapes_.nodes[order[i]]);
            node.string = shapes_.languages.is_empty(node.string) ? Languages::NOTHING : node.string;
            node.number = shapes_.languages.is_empty(node.number) ? Languages::NOTHING : node.number;
            std::vector<uint32_t> living;
            for (const uint32_t each : node.objects) {
                if (object_lives_[each]) {
                    living.push_back(static_cast<uint32_t>(objects.size()));
                    objects.push_back(std::move(shapes_.objects[each]));
                    for (Member & member : objects.back().members) {
                        renumber(member.value);
                    }
                    for (FreeMembers & free : objects.back().free) {
                        renumber(free.value);
                    }
                }
            }
            node.objects = std::move(living);
            living.clear();
            for (const uint32_t each : node.arrays) {
                if (array_lives_[each]) {
                    living.push_back(static_cast<uint32_t>(arrays.size()));
                    arrays.push_back(std::move(shapes_.arrays[each]));
                    renumber_items(arrays.back(), renumber);
                }
            }
            node.arrays = std::move(living);
            nodes.push_back(std::move(node));
        }
        shapes_.root    = 0;
        shapes_.nodes   = std::move(nodes);
        shapes_.objects = std::move(objects);
        shapes_.arrays  = std::move(arrays);
    }

    template <class Renumber>
    static void renumber_items(ArrayShape & shape, Renumber & renumber) {
        for (auto & alternatives : shape.first) {
            for (ItemAlternative & each : alternatives) {
                renumber(each.value);
            }
        }
        for (ItemAlternative & each : shape.rest) {
            renumber(each.value);
        }
    }
};

}  // namespace

bool remove_uninhabited(SchemaShapes & shapes) { return Pruner(shapes).run(); }

}  // namespace pyg
