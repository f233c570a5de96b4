// How long a chat template may run, how deeply it may recurse and how much memory it may take.
//
// Templates come with models, and one that repeats a text without end would have the kernel kill the process. The
// interpreter is built of standard strings and containers, which take their memory from `operator new`: the linker
// leads this module's calls of it through functions that count on those threads that ask for it (see
// csrc/CMakeLists.txt). They pass each call on, so memory comes from where the process always takes it, and may be
// freed by whoever gets it.
#pragma once

#include <cstddef>

namespace pyg {

// What passes through upstream to whoever set the limits. Deliberately not a std::exception: upstream tries a new
// template with many conversations, and would go on with the next.
struct TemplateStopped {};

// While it lives, what this thread renders is limited. Memory is that which was allocated on the thread and not freed:
// an allocation beyond that, or after the time is over, or deep in the stack (see large_stack.hpp), throws a
// std::bad_alloc. Not nested. Memory is not counted with other linkers than those of Linux, nor with other standard
// libraries than GNU's.
class TemplateLimits {
  public:
    explicit TemplateLimits(size_t max_bytes) noexcept;
    ~TemplateLimits();
    TemplateLimits(const TemplateLimits &)             = delete;
    TemplateLimits & operator=(const TemplateLimits &) = delete;

    // A step of the interpreter. Beyond a limit it throws std::runtime_error, to which upstream adds where in the
    // template that was, and from then on TemplateStopped; after an allocation that failed, TemplateStopped at once.
    static void step();

    // A step that compares a list or an object. How many there may be is limited, too: upstream hashes what can be
    // compared, and nothing can stop that.
    static void compare();

    // The limit that was exceeded, as a sentence; null if none was. From then on allocations succeed, so that errors
    // can be told.
    static const char * exceeded() noexcept;

    // Whether an allocation failed that was within the limits. Upstream takes that for a template's refusal, too.
    static bool lacked_memory() noexcept;
};

}  // namespace pyg
