#include "chat/template_memory.hpp"

#include "boundary/deep_stack.hpp"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string>

#if defined(__GLIBCXX__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#    define PYG_COUNTS_MEMORY
#    include <malloc.h>
#endif

namespace {

thread_local int64_t      t_left    = INT64_MAX;  // bytes that this thread may still take
thread_local bool         t_counts  = false;
thread_local const char * t_refusal = nullptr;

}  // namespace

namespace pyg {

TemplateMemory::TemplateMemory(size_t max_bytes) noexcept {
    t_left    = static_cast<int64_t>(max_bytes);
    t_refusal = nullptr;
    t_counts  = true;
}

TemplateMemory::~TemplateMemory() { t_counts = false; }

const char * TemplateMemory::refusal() noexcept { return t_refusal; }

}  // namespace pyg

#ifdef PYG_COUNTS_MEMORY

namespace {

class Refused : public std::bad_alloc {
  public:
    const char * what() const noexcept override { return t_refusal; }
};

using pyg::TOO_DEEP;

[[noreturn]] void refuse(const char * why) {
    t_counts  = false;
    t_refusal = why;
    throw Refused();
}

void require_allowed(size_t size) {
    if (size > static_cast<size_t>(t_left > 0 ? t_left : 0)) {
        refuse("the template takes too much memory");
    }
    if (pyg::deep_in_stack()) {
        refuse(TOO_DEEP);
    }
}

void * allocate(size_t size, size_t alignment) {
    if (t_counts) {
        require_allowed(size);
    }
    while (true) {
        const size_t bytes  = size ? size : 1;
        void * const memory = alignment ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                                        : std::malloc(bytes);
        if (memory) {
            if (t_counts) {
                t_left -= static_cast<int64_t>(malloc_usable_size(memory));
            }
            return memory;
        }
        const std::new_handler handler = std::get_new_handler();
        if (!handler) {
            throw std::bad_alloc();
        }
        handler();
    }
}

void * allocate_or_null(size_t size, size_t alignment) noexcept {
    try {
        return allocate(size, alignment);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void release(void * memory) noexcept {
    if (t_counts && memory) {
        t_left += static_cast<int64_t>(malloc_usable_size(memory));
    }
    std::free(memory);
}

}  // namespace

// Weak, because a test may have its own.
#    define PYG_WEAK __attribute__((weak))
PYG_WEAK void * operator new(size_t size) { return allocate(size, 0); }
PYG_WEAK void * operator new[](size_t size) { return allocate(size, 0); }
PYG_WEAK void * operator new(size_t size, std::align_val_t align) { return allocate(size, static_cast<size_t>(align)); }
PYG_WEAK void * operator new[](size_t size, std::align_val_t align) {
    return allocate(size, static_cast<size_t>(align));
}
PYG_WEAK void * operator new(size_t size, const std::nothrow_t &) noexcept { return allocate_or_null(size, 0); }
PYG_WEAK void * operator new[](size_t size, const std::nothrow_t &) noexcept { return allocate_or_null(size, 0); }
PYG_WEAK void * operator new(size_t size, std::align_val_t align, const std::nothrow_t &) noexcept {
    return allocate_or_null(size, static_cast<size_t>(align));
}
PYG_WEAK void * operator new[](size_t size, std::align_val_t align, const std::nothrow_t &) noexcept {
    return allocate_or_null(size, static_cast<size_t>(align));
}

PYG_WEAK void operator delete(void * memory) noexcept { release(memory); }
PYG_WEAK void operator delete[](void * memory) noexcept { release(memory); }
PYG_WEAK void operator delete(void * memory, size_t) noexcept { release(memory); }
PYG_WEAK void operator delete[](void * memory, size_t) noexcept { release(memory); }
PYG_WEAK void operator delete(void * memory, std::align_val_t) noexcept { release(memory); }
PYG_WEAK void operator delete[](void * memory, std::align_val_t) noexcept { release(memory); }
PYG_WEAK void operator delete(void * memory, size_t, std::align_val_t) noexcept { release(memory); }
PYG_WEAK void operator delete[](void * memory, size_t, std::align_val_t) noexcept { release(memory); }
PYG_WEAK void operator delete(void * memory, const std::nothrow_t &) noexcept { release(memory); }
PYG_WEAK void operator delete[](void * memory, const std::nothrow_t &) noexcept { release(memory); }
PYG_WEAK void operator delete(void * memory, std::align_val_t, const std::nothrow_t &) noexcept { release(memory); }
PYG_WEAK void operator delete[](void * memory, std::align_val_t, const std::nothrow_t &) noexcept { release(memory); }

// What grows in the standard library, compiled here, where it takes its memory from the operators above.
template class std::basic_string<char>;
template class std::basic_stringbuf<char>;
template class std::basic_istringstream<char>;
template class std::basic_ostringstream<char>;
template class std::basic_stringstream<char>;

#endif
