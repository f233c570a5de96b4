// Callbacks by which callers change logits before a token is sampled. They run on the engine's thread.
#pragma once

#include "boundary/handles.hpp"
#include "engine/deadline.hpp"

#include <mutex>
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
    RunningCallback(const void * engine, const Model & model) noexcept;
    ~RunningCallback();

    static const void * engine();

    // How long the callbacks of a model's engines have been running: the longest of them; 0 if none is. Any thread.
    static double seconds_of(const Model & model);

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

  private:
    const void * const      engine_;
    const Model * const     model_;
    const Clock::time_point since_ = Clock::now();
    RunningCallback *       next_  = nullptr;  // in the list of all

    static std::mutex        mutex_;
    static RunningCallback * first_;
};

}  // namespace pyg
