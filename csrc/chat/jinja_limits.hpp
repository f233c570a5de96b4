// Clean-up after the interpreter of chat templates; its limits are in jinja_limits.h.
#pragma once

namespace pyg {

// At the end of its life, cyclic lists and objects made by this thread's templates are taken apart, so that they are
// freed.
class JinjaValues {
  public:
    JinjaValues() = default;
    ~JinjaValues();
    JinjaValues(const JinjaValues &)             = delete;
    JinjaValues & operator=(const JinjaValues &) = delete;
};

}  // namespace pyg
