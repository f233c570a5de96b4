// Base of classes that own a resource and are neither copied nor moved.
#pragma once

namespace pyg {

class NonCopyable {
  public:
    NonCopyable(const NonCopyable &)             = delete;
    NonCopyable & operator=(const NonCopyable &) = delete;

  protected:
    NonCopyable()  = default;
    ~NonCopyable() = default;
};

}  // namespace pyg
