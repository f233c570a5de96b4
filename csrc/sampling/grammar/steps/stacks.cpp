#include "sampling/grammar/steps/stacks.hpp"

namespace pyg {

StackId Stacks::push(const StackFrame & frame, StackId below) {
    const uint64_t hash = mixed_hash(hash_of(frame), below);
    const uint32_t known =
        index_.find(hash, [&](uint32_t id) { return stacks_[id].below == below && stacks_[id].top == frame; });
    if (known != IdIndex::NONE) {
        return known;
    }
    index_.reserve_one();
    stacks_.push_back({frame, below});
    index_.add(hash, static_cast<StackId>(stacks_.size() - 1));
    return static_cast<StackId>(stacks_.size() - 1);
}

}  // namespace pyg
