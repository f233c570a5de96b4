// One signal, of which the process has one handler: ours while it is wanted, and whoever was there before is called for
// what is not ours.
#pragma once

#include <csignal>

namespace pyg {

// Everything but hand_on() under a lock of the caller's.
class SignalHandler {
  public:
    using Handler = void (*)(int, siginfo_t *, void *);

    constexpr SignalHandler(int number, Handler handler) : number_(number), handler_(handler) {}

    // Not over a handler that came while ours was there, and that may call ours: each would call the other without end.
    void install();

    // Where somebody has installed a handler meanwhile, it stays.
    void restore();

    // To the handler that was there before ours. If that is the system's own, the instruction fails again, and ends it
    // all.
    void call_previous(siginfo_t * info, void * context) const;

    int number() const { return number_; }

  private:
    const void * current() const;

    int              number_;
    Handler          handler_;
    struct sigaction before_ = {};
    const void *     above_  = nullptr;
};

}  // namespace pyg
