#include "boundary/traps.hpp"

#include "boundary/guard.hpp"

#include <csignal>
#include <cstdint>
#include <mutex>

#ifdef __linux__

namespace {

// Members of what a null pointer would point to lie below this address, where the kernel maps nothing.
constexpr uintptr_t NULL_PAGES = 1 << 16;

struct Trap {
    int              number;
    struct sigaction before = {};
    const void *     above  = nullptr;  // a handler that came while ours was there, and that may call ours
};

Trap             g_traps[] = {{SIGFPE}, {SIGSEGV}};
std::mutex       g_traps_mutex;
int              g_scopes = 0;
thread_local int t_scopes = 0;

bool is_null_pointer(const siginfo_t & info) {
    return info.si_code == SEGV_MAPERR && reinterpret_cast<uintptr_t>(info.si_addr) < NULL_PAGES;
}

bool is_division(const siginfo_t & info) { return info.si_code == FPE_INTDIV || info.si_code == FPE_INTOVF; }

// By the handler that was there before us. If that is the system's own, the instruction fails again, and ends it all.
void hand_on(int number, siginfo_t * info, void * context) {
    for (const Trap & trap : g_traps) {
        if (trap.number != number) {
            continue;
        }
        if (trap.before.sa_flags & SA_SIGINFO) {
            trap.before.sa_sigaction(number, info, context);
        } else if (trap.before.sa_handler == SIG_DFL || trap.before.sa_handler == SIG_IGN) {
            signal(number, SIG_DFL);
            if (info->si_code <= 0) {
                raise(number);  // somebody sent it, so nothing would fail again
            }
        } else {
            trap.before.sa_handler(number);
        }
    }
}

void on_trap(int number, siginfo_t * info, void * context) {
    if (t_scopes > 0 && number == SIGFPE && is_division(*info)) {
        throw pyg::EngineAbort{"it divides by a size that is 0 in the file"};
    }
    if (t_scopes > 0 && number == SIGSEGV && is_null_pointer(*info)) {
        throw pyg::EngineAbort{"it takes a tensor for granted that the file does not have"};
    }
    hand_on(number, info, context);
}

const void * handler_of(const struct sigaction & action) {
    return action.sa_flags & SA_SIGINFO ? reinterpret_cast<const void *>(action.sa_sigaction)
                                        : reinterpret_cast<const void *>(action.sa_handler);
}

const void * current_handler(const Trap & trap) {
    struct sigaction now = {};
    sigaction(trap.number, nullptr, &now);
    return handler_of(now);
}

// Not over a handler that may call ours: each would call the other without end.
void install() {
    // Without NODEFER the signal would stay blocked, as an exception leaves the handler. ONSTACK is for threads of
    // other runtimes (Go's), whose own stacks have no room for a handler, and for faulthandler's report of an overflow.
    struct sigaction action = {};
    action.sa_sigaction     = on_trap;
    action.sa_flags         = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    for (Trap & trap : g_traps) {
        if (!trap.above || trap.above != current_handler(trap)) {
            sigaction(trap.number, &action, &trap.before);
        }
    }
}

// Where somebody has installed a handler meanwhile, it stays.
void restore() {
    for (Trap & trap : g_traps) {
        const void * const now = current_handler(trap);
        if (now == reinterpret_cast<const void *>(on_trap)) {
            sigaction(trap.number, &trap.before, nullptr);
        } else {
            trap.above = now;
        }
    }
}

}  // namespace

namespace pyg {

TrapScope::TrapScope() noexcept {
    std::lock_guard<std::mutex> lock(g_traps_mutex);
    if (g_scopes++ == 0) {
        install();
    }
    t_scopes++;
}

TrapScope::~TrapScope() {
    std::lock_guard<std::mutex> lock(g_traps_mutex);
    t_scopes--;
    if (--g_scopes == 0) {
        restore();
    }
}

void lock_traps_for_fork() { g_traps_mutex.lock(); }

void unlock_traps_after_fork() { g_traps_mutex.unlock(); }

void forget_traps_in_child() {
    if (g_scopes > 0 && t_scopes == 0) {
        restore();
    }
    g_scopes = t_scopes;
}

}  // namespace pyg

#else

namespace pyg {

TrapScope::TrapScope() noexcept {}

TrapScope::~TrapScope() {}

void lock_traps_for_fork() {}

void unlock_traps_after_fork() {}

void forget_traps_in_child() {}

}  // namespace pyg

#endif
