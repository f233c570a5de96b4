// Limits on the time, recursion and memory of chat templates.
//
// Templates come with models and are not trusted: one that repeats a text without end would exhaust memory. The
// interpreter uses standard strings and containers, which allocate with `operator new`: the linker redirects this
// module's calls to functions that count on the threads that set limits (see csrc/CMakeLists.txt) and forward each
// call, so any allocator works and memory can be freed anywhere.
#pragma once

#include "boundary/non_copyable.hpp"

#include <cstddef>

namespace pyg {

// Thrown through upstream to the code that set the limits. Deliberately not a std::exception: upstream tries a new
// template with many conversations, and would continue with the next.
struct TemplateStopped {};

// While it lives, templates rendered on this thread are limited. Memory is what was allocated on the thread and not
// freed: an allocation beyond the limit, after the time limit, or deep in the stack (see large_stack.hpp) throws
// std::bad_alloc. Not nested. Memory is counted only with Linux linkers and GNU's standard library.
class TemplateLimits : NonCopyable {
  public:
    explicit TemplateLimits(size_t max_bytes) noexcept;
    ~TemplateLimits();

    // Count a step of the interpreter. Beyond a limit it throws std::runtime_error, to which upstream adds the position
    // in the template, and from then on TemplateStopped; after a failed allocation, TemplateStopped at once.
    static void step();

    // Count a comparison of a list or an object. Their number is limited, too: upstream hashes comparable values, which
    // cannot be interrupted.
    static void compare();

    // Message about the exceeded limit; null if none was. From then on allocations succeed, so that errors can be
    // reported.
    static const char * exceeded() noexcept;

    // True if an allocation within the limits failed, which upstream takes for an error of the template.
    static bool lacked_memory() noexcept;
};

// At the end of its life, cyclic lists and objects made by this thread's templates are taken apart, so that they are
// freed.
class JinjaValues : NonCopyable {
  public:
    JinjaValues() = default;
    ~JinjaValues();
};

}  // namespace pyg
