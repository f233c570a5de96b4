// How much memory a chat template may take.
//
// Templates come with models, and one that repeats a text without end would have the kernel kill the process. The
// interpreter is built of standard strings and containers, whose allocator is `operator new`: the module has its own,
// which counts on those threads that ask for it. The standard library's memory is then counted as well, since the
// classes of it that grow are compiled into the module.
#pragma once

#include <cstddef>

namespace pyg {

constexpr const char * TOO_DEEP = "the template calls itself, or nests lists, too many times";

// While it lives, memory allocated on this thread and not freed is limited: an allocation beyond that, or deep in the
// stack (see deep_stack.hpp), throws a std::bad_alloc. Not with sanitizers, which have an `operator new` of their own,
// nor with other standard libraries than GNU's.
class TemplateMemory {
  public:
    explicit TemplateMemory(size_t max_bytes) noexcept;
    ~TemplateMemory();
    TemplateMemory(const TemplateMemory &)             = delete;
    TemplateMemory & operator=(const TemplateMemory &) = delete;

    // Why an allocation was refused, from then on; null if none was. After that nothing is, so that errors can be told.
    static const char * refusal() noexcept;
};

}  // namespace pyg
