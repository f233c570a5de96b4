// What the interpreter of chat templates leaves behind; see jinja_limits.h for how it is limited.
#pragma once

namespace pyg {

// While it lives, this thread's templates may make lists that hold themselves: they are taken apart at its end, when
// nothing may need them any more.
class JinjaValues {
  public:
    JinjaValues() = default;
    ~JinjaValues();
    JinjaValues(const JinjaValues &)             = delete;
    JinjaValues & operator=(const JinjaValues &) = delete;
};

}  // namespace pyg
