// Clean-up after the interpreter of chat templates; its limits are in jinja_limits.h.
#pragma once

#include "boundary/non_copyable.hpp"

namespace pyg {

// At the end of its life, cyclic lists and objects made by this thread's templates are taken apart, so that they are
// freed.
class JinjaValues : NonCopyable {
  public:
    JinjaValues() = default;
    ~JinjaValues();
};

}  // namespace pyg
