// Callbacks by which callers change logits before a token is sampled. They run on the engine's thread.
#pragma once

#include "boundary/handles.hpp"

#include <thread>
#include <vector>

namespace pyg {

// The callback of a request, and the row of logits that it writes.
struct LogitsProcessor {
    pyg_logits_callback callback;
    uint64_t            id;
    std::vector<float>  row;
};

using LogitsRows = std::vector<pyg_logits_row>;

// The engine whose callback this thread runs, if any. The engine waits for the thread.
class RunningCallback : NonCopyable {
  public:
    explicit RunningCallback(const void * engine);
    ~RunningCallback();

    static const void * engine();

    // PYG_ERR_INVALID_PARAMETER if this thread runs a callback of `engine`, for which the calling function waits.
    static void require_not_of(const void * engine);

    // Run `free`, which waits for an engine's thread: in another thread if this one runs a callback, where a garbage
    // collector may free any object.
    template <class Free>
    static void run_outside(Free && free) {
        if (engine()) {
            std::thread(free).detach();
        } else {
            free();
        }
    }
};

}  // namespace pyg
