// Upstream matches text with std::regex, which recurses once for each character of a match: a long word, or a long
// line of dashes, overflows an ordinary stack and ends the process. Such work runs on a stack that is large enough.
#pragma once

#include <cstddef>
#include <functional>

namespace pyg {

// Runs body(), here or on a thread whose stack is large enough to match `text_bytes` bytes, and returns when it is
// done. For short texts exceptions pass unchanged; for long ones they become Failure. PYG_ERR_OUT_OF_MEMORY when there
// is no room for such a stack.
void with_stack_for(size_t text_bytes, const std::function<void()> & body);

// The same, always on a stack of its own, with `spare` bytes below its end for what must not be stopped: nested lists
// that are freed recurse once for each level.
void on_large_stack(size_t text_bytes, const std::function<void()> & body, size_t spare = 0);

// Whether this thread runs on such a stack and has used half of it.
bool stack_half_used() noexcept;

}  // namespace pyg
