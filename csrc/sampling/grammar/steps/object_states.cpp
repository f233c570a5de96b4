#include "sampling/grammar/steps/object_states.hpp"

#include "regex/utf8.hpp"

#include <algorithm>
#include <utility>

namespace {

// Members that must come in addition to the required ones, if there are free ones.
size_t least_free(const pyg::ObjectShape & shape) {
    const auto n_required = static_cast<size_t>(std::count_if(
        shape.members.begin(), shape.members.end(), [](const pyg::Member & member) { return member.required; }));
    return shape.free.empty() || shape.least < n_required ? 0 : shape.least - n_required;
}

}  // namespace

namespace pyg {

NameTrie::NameTrie(const std::vector<Member> & members) : nodes_(1) {
    for (uint32_t member = 0; member < members.size(); member++) {
        uint32_t at = 0;
        nodes_[at].below.push_back(member);
        for (const uint32_t code_point : code_points_of(members[member].name)) {
            uint32_t next = after(at, code_point);
            if (next == NONE) {
                next = static_cast<uint32_t>(nodes_.size());
                nodes_.emplace_back();
                auto &     children = nodes_[at].children;
                const auto child    = std::make_pair(code_point, next);
                children.insert(std::lower_bound(children.begin(), children.end(), child), child);
            }
            at = next;
            nodes_[at].below.push_back(member);
        }
        nodes_[at].member = member;
    }
}

uint32_t NameTrie::after(uint32_t index, uint32_t code_point) const {
    const auto & children = nodes_[index].children;
    const auto   found    = std::lower_bound(children.begin(), children.end(), std::make_pair(code_point, 0u));
    return found != children.end() && found->first == code_point ? found->second : NONE;
}

ObjectStates::ObjectStates(const ObjectShape & shape, bool any_order)
    : shape_(shape), any_order_(any_order), names_(shape.members),
      requires_free_(
          std::any_of(shape.free.begin(), shape.free.end(), [](const FreeMembers & f) { return f.required; })),
      keeps_names_(requires_free_ || least_free(shape) > 1) {}

uint32_t ObjectStates::start() {
    State state;
    state.closed.resize(shape_.members.size());
    for (const FreeMembers & each : shape_.free) {
        state.missing.push_back(each.required);
    }
    return id_of(std::move(state));
}

uint32_t ObjectStates::after_member(uint32_t state, uint32_t member) {
    State      next  = states_[state];
    const auto begin = next.closed.begin() + static_cast<std::ptrdiff_t>(any_order_ ? member : 0);
    std::fill(begin, next.closed.begin() + static_cast<std::ptrdiff_t>(member) + 1, true);
    next.count = counted(next.count + 1);
    return id_of(std::move(next));
}

uint32_t ObjectStates::after_free(uint32_t state, uint32_t free, uint32_t names) {
    State next = states_[state];
    if (!any_order_) {
        std::fill(next.closed.begin(), next.closed.end(), true);
    }
    next.missing[free] = false;
    next.count         = counted(next.count + 1);
    next.names         = requires_free_ || (keeps_names_ && next.count < shape_.least) ? names : 0;
    return id_of(std::move(next));
}

// Counts beyond every limit are one.
uint32_t ObjectStates::counted(uint32_t count) const {
    return std::min(count, shape_.most != UNBOUNDED ? shape_.most : shape_.least);
}

uint32_t ObjectStates::id_of(State state) {
    auto       key   = std::make_tuple(state.closed, state.missing, state.count, state.names);
    const auto known = ids_.find(key);
    if (known != ids_.end()) {
        return known->second;
    }
    derive(state);
    n_bytes_ += sizeof(State) + 96 + state.closed.size() / 2;
    states_.push_back(std::move(state));
    return ids_.emplace(std::move(key), static_cast<uint32_t>(states_.size() - 1)).first->second;
}

void ObjectStates::derive(State & state) const {
    const size_t n             = shape_.members.size();
    size_t       required_left = 0;
    size_t       n_open        = 0;
    size_t       last          = n;  // in declared order, the first required member that has not come
    for (size_t i = 0; i < n; i++) {
        n_open += !state.closed[i];
        if (shape_.members[i].required && !state.closed[i]) {
            required_left++;
            last = std::min(last, i);
        }
    }
    const auto n_missing = static_cast<size_t>(std::count(state.missing.begin(), state.missing.end(), true));
    const bool endless   = !shape_.free.empty();
    const bool in_turn   = any_order_ || required_left == 0;
    required_left += n_missing;
    state.may_end  = required_left == 0 && state.count >= shape_.least;
    state.any_next = false;
    state.free_next.clear();
    for (size_t i = 0; i < shape_.free.size(); i++) {
        state.free_next.push_back(in_turn && leaves_room(state, required_left - (state.missing[i] ? 1 : 0)));
        state.any_next = state.any_next || state.free_next[i];
    }
    state.next.assign(n, false);
    size_t n_after = n_open;  // members that can still come after this one
    for (size_t i = 0; i < n; i++) {
        if (state.closed[i]) {
            continue;
        }
        n_after--;
        const size_t others = any_order_ ? n_open - 1 : n_after;
        const bool   is_due = any_order_ || i <= last;
        const bool   enough = endless || state.count + 1 + others >= shape_.least;
        state.next[i]  = is_due && enough && leaves_room(state, required_left - (shape_.members[i].required ? 1 : 0));
        state.any_next = state.any_next || state.next[i];
    }
}

// True if one more member can come and, after it, so many required ones.
bool ObjectStates::leaves_room(const State & state, size_t required_left) const {
    return shape_.most == UNBOUNDED || state.count + 1 + required_left <= shape_.most;
}

bool ObjectStates::may_continue(uint32_t state, uint32_t trie_node) const {
    const std::vector<bool> & next  = states_[state].next;
    const auto &              below = names_.node(trie_node).below;
    return std::any_of(below.begin(), below.end(), [&](uint32_t member) { return next[member]; });
}

}  // namespace pyg
