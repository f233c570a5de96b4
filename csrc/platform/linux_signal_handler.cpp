#include "platform/linux_signal_handler.hpp"

namespace pyg {

const void * SignalHandler::current() const {
    struct sigaction now = {};
    sigaction(number_, nullptr, &now);
    return now.sa_flags & SA_SIGINFO ? reinterpret_cast<const void *>(now.sa_sigaction)
                                     : reinterpret_cast<const void *>(now.sa_handler);
}

void SignalHandler::install() {
    if (above_ && above_ == current()) {
        return;
    }
    // Without NODEFER the signal would stay blocked when an exception leaves the handler. ONSTACK is for threads of
    // other runtimes (Go's) with small stacks, and for faulthandler, which reports stack overflows.
    struct sigaction action = {};
    action.sa_sigaction     = handler_;
    action.sa_flags         = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(number_, &action, &before_);
}

void SignalHandler::restore() {
    const void * const now = current();
    if (now == reinterpret_cast<const void *>(handler_)) {
        sigaction(number_, &before_, nullptr);
    } else {
        above_ = now;
    }
}

void SignalHandler::call_previous(siginfo_t * info, void * context) const {
    if (before_.sa_flags & SA_SIGINFO) {
        before_.sa_sigaction(number_, info, context);
    } else if (before_.sa_handler == SIG_DFL || before_.sa_handler == SIG_IGN) {
        signal(number_, SIG_DFL);
        if (info->si_code <= 0) {
            raise(number_);  // sent by kill(): no instruction would fault again
        }
    } else {
        before_.sa_handler(number_);
    }
}

}  // namespace pyg
