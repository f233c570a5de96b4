// Detects whether a core is free beside the compute threads, without taking it from other programs.
//
// While steps run, a helper thread of lowest priority spins for short windows and compares the processor time it got
// with the time that passed: all of it if a core is idle, almost none if all cores are busy. It sleeps unless a running
// step asks for it.
#pragma once

#include <cstdint>
#include <memory>

namespace pyg {

// All calls come from one thread, the one that computes the steps, and none waits for the helper.
class IdleCoreProbe {
  public:
    // Since the last forget().
    struct Observation {
        int32_t n_free    = 0;      // how many windows in a row, up to the last, found a core free
        bool    was_taken = false;  // an earlier window did not
    };

    virtual ~IdleCoreProbe() = default;

    // A step with n_threads begins; 0: do not look during this one. A different number from the last one forgets what
    // was seen.
    virtual void step_begins(int32_t n_threads) = 0;
    virtual void step_ends()                    = 0;

    virtual void reset() = 0;

    virtual Observation observation() const = 0;
};

// The real one. Its thread outlives it until some core lets a thread of lowest priority run for a moment.
std::unique_ptr<IdleCoreProbe> make_idle_core_probe();

}  // namespace pyg
