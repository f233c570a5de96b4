// Parser stacks, each stored once: stacks share their tails.
#pragma once

#include "sampling/grammar/steps/frames.hpp"

#include <unordered_map>
#include <vector>

namespace pyg {

using StackId = uint32_t;

class Stacks {
  public:
    static constexpr StackId EMPTY = 0;  // nothing follows

    StackId push(const StackFrame & frame, StackId below);

    const StackFrame & top(StackId stack) const { return frames_[stacks_[stack].frame]; }
    StackId            below(StackId stack) const { return stacks_[stack].below; }
    size_t             n_bytes() const { return n_bytes_; }

  private:
    struct Stack {
        uint32_t frame;
        StackId  below;
    };

    std::vector<StackFrame>                                  frames_ = {{FrameKind::SYMBOL}};
    std::unordered_map<StackFrame, uint32_t, StackFrameHash> frame_ids_;
    std::vector<Stack>                                       stacks_ = {{0, 0}};
    std::unordered_map<uint64_t, StackId>                    stack_ids_;
    size_t                                                   n_bytes_ = 0;
};

}  // namespace pyg
