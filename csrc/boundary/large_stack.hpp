// Large stacks for upstream's std::regex, which recurses once per character: a long word or a long line of dashes
// overflows an ordinary stack and crashes the process.
#pragma once

#include <cstddef>
#include <functional>

namespace pyg {

// Run body(), here or on a thread with a stack large enough to match `text_bytes` bytes, and wait for it. For short
// texts exceptions pass unchanged; for long ones they become Failure. PYG_ERR_OUT_OF_MEMORY when the stack cannot be
// allocated.
void with_stack_for(size_t text_bytes, const std::function<void()> & body);

// Always run on a separate stack, with `spare` more bytes for code that must not be stopped: freeing nested lists
// recurses once per level.
void on_large_stack(size_t text_bytes, const std::function<void()> & body, size_t spare = 0);

// True if this thread runs on such a stack and has used half of it.
bool stack_half_used() noexcept;

}  // namespace pyg
