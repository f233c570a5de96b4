// Helpers for native threads.
#pragma once

#include "boundary/non_copyable.hpp"

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace pyg {

// While it lives, threads started on this thread block signals, so that Ctrl-C reaches one of Python's threads. Signals
// that report a crash of the thread itself are not blocked.
class SignalsBlocked : NonCopyable {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
            sigdelset(&all, crash);
        }
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

inline void name_this_thread(const char * name) {
#if defined(__APPLE__)
    pthread_setname_np(name);
#else
    pthread_setname_np(pthread_self(), name);
#endif
}

}  // namespace pyg
