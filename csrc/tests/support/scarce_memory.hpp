// Replacements of operator new and delete whose allocations fail on request. For one file of a program.
#pragma once

#include <cstdlib>
#include <new>

// How many more allocations succeed; negative: all.
inline long g_allocations_left = -1;

// While it lives, the n-th allocation and all after it fail.
struct Scarce {
    explicit Scarce(long n_allocations) { g_allocations_left = n_allocations; }
    ~Scarce() { g_allocations_left = -1; }
    Scarce(const Scarce &)             = delete;
    Scarce & operator=(const Scarce &) = delete;
};

// When inlined, gcc would warn about malloc() with delete.
[[gnu::noinline]] void * operator new(std::size_t size) {
    if (g_allocations_left == 0) {
        throw std::bad_alloc();
    }
    g_allocations_left -= g_allocations_left > 0;
    if (void * const memory = std::malloc(size ? size : 1)) {
        return memory;
    }
    throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void * memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void * memory, std::size_t) noexcept { std::free(memory); }

// Call `body` with memory for no allocation, for one, and so on until it succeeds. Return how often it failed.
template <class Body>
long with_ever_more_memory(Body && body) {
    for (long n = 0;; n++) {
        try {
            const Scarce scarce(n);
            body();
            return n;
        } catch (const std::bad_alloc &) {}
    }
}
