#include "sampling/grammar/steps/stacks.hpp"

namespace pyg {

// New items are added to the lists first and to the indexes last: if an allocation fails in between, the item in the
// list is never found.
StackId Stacks::push(const StackFrame & frame, StackId below) {
    auto known_frame = frame_ids_.find(frame);
    if (known_frame == frame_ids_.end()) {
        frames_.push_back(frame);
        n_bytes_ += 2 * sizeof(StackFrame) + 4 * sizeof(uint64_t);
        known_frame = frame_ids_.emplace(frame, static_cast<uint32_t>(frames_.size() - 1)).first;
    }
    const uint64_t key   = static_cast<uint64_t>(known_frame->second) << 32 | below;
    const auto     known = stack_ids_.find(key);
    if (known != stack_ids_.end()) {
        return known->second;
    }
    stacks_.push_back({known_frame->second, below});
    n_bytes_ += sizeof(Stack) + 5 * sizeof(uint64_t);
    return stack_ids_.emplace(key, static_cast<StackId>(stacks_.size() - 1)).first->second;
}

}  // namespace pyg
