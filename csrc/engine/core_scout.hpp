// Tells whether a core is free beside the compute threads, without taking it from anybody.
//
// A helper thread of the lowest priority spins for short windows while steps run, and compares the processor time it
// got with the time that passed: it gets all of it where a core has nothing else to do, next to nothing where the
// cores are taken. It sleeps unless a running step asks for it.
#pragma once

#include <cstdint>
#include <memory>

namespace pyg {

// All calls come from one thread, the one that computes the steps, and none waits for the helper.
class Scout {
  public:
    // Since the last forget().
    struct Sight {
        int32_t n_free    = 0;      // the last so many windows found a core free
        bool    was_taken = false;  // an earlier one did not
    };

    virtual ~Scout() = default;

    // A step begins, computed with n_threads; 0: nothing is asked during this one. Another number than the last asked
    // for forgets what was seen.
    virtual void step_begins(int32_t n_threads) = 0;
    virtual void step_ends()                    = 0;

    virtual void forget() = 0;

    virtual Sight sight() const = 0;
};

// The real one, with its thread, which outlives it until some core lets a thread of lowest priority run for a moment.
std::unique_ptr<Scout> make_core_scout();

}  // namespace pyg
