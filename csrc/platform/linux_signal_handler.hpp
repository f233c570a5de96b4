// Process-wide handler of one signal, which forwards unrelated signals to the previous handler.
#pragma once

#include <csignal>

namespace pyg {

// All functions but call_previous() need the caller's lock.
class SignalHandler {
  public:
    using Handler = void (*)(int, siginfo_t *, void *);

    constexpr SignalHandler(int number, Handler handler) : number_(number), handler_(handler) {}

    // Install our handler; unless a later handler may already forward to ours, which would make an endless loop.
    void install();

    // Restore the previous handler, unless another one has been installed since.
    void restore();

    // Forward a signal to the previous handler. If that is the default one, the faulting instruction is repeated and
    // ends the process.
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
