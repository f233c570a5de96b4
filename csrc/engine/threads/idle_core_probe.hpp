// Probe for idle cores that takes no CPU time from other programs.
//
// While steps run, a helper thread of lowest priority spins for short windows and compares its CPU time with wall-clock
// time: they are equal if a core is idle, and its CPU time is near zero if all cores are busy. It sleeps unless the
// tuner wants an observation.
#pragma once

#include <cstdint>
#include <memory>

namespace pyg {

// Called by the engine's thread only; no call waits for the helper thread.
class IdleCoreProbe {
  public:
    // Since the last reset().
    struct Observation {
        int32_t n_free    = 0;      // consecutive windows, up to the last, with an idle core
        bool    was_taken = false;  // an earlier window had none
    };

    virtual ~IdleCoreProbe() = default;

    // Start of a step with n_threads; 0: do not observe it. A number other than the last one resets the observation.
    virtual void step_begins(int32_t n_threads) = 0;
    virtual void step_ends()                    = 0;

    virtual void reset() = 0;

    virtual Observation observation() const = 0;

    // Cores that no other thread is running on now, by the system's own count; INT32_MAX if it has none. It takes a
    // millisecond if the cores look busy.
    virtual int32_t n_idle_cores() const = 0;
};

// The implementation. Nothing waits for its thread, which may outlive it by a second: it stops once it gets a core.
std::shared_ptr<IdleCoreProbe> make_idle_core_probe();

}  // namespace pyg
