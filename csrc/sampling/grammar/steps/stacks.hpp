// Parser stacks, each stored once: stacks share their tails.
#pragma once

#include "sampling/grammar/steps/frames.hpp"
#include "sampling/grammar/tables/id_index.hpp"

#include <vector>

namespace pyg {

using StackId = uint32_t;

class Stacks {
  public:
    static constexpr StackId EMPTY = 0;  // nothing follows

    StackId push(const StackFrame & frame, StackId below);

    const StackFrame & top(StackId stack) const { return stacks_[stack].top; }
    StackId            below(StackId stack) const { return stacks_[stack].below; }
    size_t             n_bytes() const { return stacks_.size() * sizeof(Stack) + index_.n_bytes(); }

  private:
    struct Stack {
        StackFrame top;
        StackId    below;
    };

    std::vector<Stack> stacks_ = {{{FrameKind::SYMBOL}, EMPTY}};
    IdIndex            index_;
};

}  // namespace pyg
