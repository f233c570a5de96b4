#include "sampling/grammar/steps/array_states.hpp"

#include "boundary/guard.hpp"

#include <algorithm>
#include <utility>

namespace {

constexpr size_t MAX_EXPLORED = 100'000;  // states of one shape with counters

}  // namespace

namespace pyg {

ArrayStates::ArrayStates(const ArrayShape & shape)
    : shape_(shape), most_counted_(std::max({static_cast<uint32_t>(shape.first.size()), shape.least,
                                             shape.most == UNBOUNDED ? 0 : shape.most})) {}

uint32_t ArrayStates::start() { return id_of({0, std::vector<uint32_t>(shape_.counters.size()), 0}); }

bool ArrayStates::may_end(uint32_t state) const { return is_complete(states_[state]); }

bool ArrayStates::is_complete(const State & state) const {
    for (size_t i = 0; i < shape_.counters.size(); i++) {
        if (state.counters[i] < shape_.counters[i].least) {
            return false;
        }
    }
    return state.count >= shape_.least;
}

const std::vector<ItemAlternative> & ArrayStates::alternatives(uint32_t count) const {
    static const std::vector<ItemAlternative> none;
    if (shape_.most != UNBOUNDED && count >= shape_.most) {
        return none;
    }
    return count < shape_.first.size() ? shape_.first[count] : shape_.rest;
}

std::vector<ItemAlternative> ArrayStates::next(uint32_t state) {
    std::vector<ItemAlternative> result;
    const State                  now = states_[state];
    for (const ItemAlternative & item : alternatives(now.count)) {
        State after;
        if (counted(now, item, after) && can_be_completed(after)) {
            result.push_back(item);
        }
    }
    return result;
}

uint32_t ArrayStates::after(uint32_t state, const ItemAlternative & item) {
    State next;
    counted(states_[state], item, next);
    return id_of(std::move(next));
}

uint32_t ArrayStates::with_values(uint32_t state, uint32_t values) {
    State next  = states_[state];
    next.values = values;
    return id_of(std::move(next));
}

// False if a counter would exceed its limit.
bool ArrayStates::counted(const State & state, const ItemAlternative & item, State & after) const {
    after       = state;
    after.count = std::min(state.count + 1, most_counted_);
    for (size_t i = 0; i < shape_.counters.size(); i++) {
        if (item.counts >> i & 1) {
            const ItemCounter & counter = shape_.counters[i];
            if (counter.most != UNBOUNDED && state.counters[i] >= counter.most) {
                return false;
            }
            after.counters[i] =
                std::min(state.counters[i] + 1, counter.most == UNBOUNDED ? counter.least : counter.most);
        }
    }
    return true;
}

// Search for a way to the end. Without counters every state has one, as shapes promise.
bool ArrayStates::can_be_completed(const State & state) {
    if (shape_.counters.empty()) {
        return true;
    }
    State from                    = state;
    from.values                   = 0;
    std::vector<State>      path  = {from};
    std::map<State, bool> & known = completable_;
    std::map<State, bool>   seen;
    bool                    found = false;
    while (!path.empty() && !found) {
        const State now = path.back();
        path.pop_back();
        if (!seen.emplace(now, true).second) {
            continue;
        }
        const auto answer = known.find(now);
        if (answer != known.end() ? answer->second : is_complete(now)) {
            found = true;
            break;
        }
        if (answer != known.end()) {
            continue;
        }
        for (const ItemAlternative & item : alternatives(now.count)) {
            State after;
            if (counted(now, item, after)) {
                path.push_back(std::move(after));
            }
        }
        if (seen.size() + known.size() > MAX_EXPLORED) {
            throw fail(PYG_ERR_GRAMMAR, "an array's items can be counted in too many ways (contains, minContains)");
        }
    }
    if (!found) {  // none of those seen has a way
        for (const auto & [each, unused] : seen) {
            known.emplace(each, false);
        }
    }
    return known.emplace(from, found).first->second;
}

uint32_t ArrayStates::id_of(State state) {
    const auto known = ids_.find(state);
    if (known != ids_.end()) {
        return known->second;
    }
    n_bytes_ += 2 * (sizeof(State) + sizeof(uint32_t) * state.counters.size()) + 64;
    states_.push_back(state);
    return ids_.emplace(std::move(state), static_cast<uint32_t>(states_.size() - 1)).first->second;
}

}  // namespace pyg
