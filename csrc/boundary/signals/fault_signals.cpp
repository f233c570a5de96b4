#include "boundary/signals/fault_signals.hpp"

#include "boundary/guard.hpp"
#include "boundary/signals/signal_handler.hpp"

#include <cstdint>
#include <mutex>

#ifdef __linux__

namespace {

// Members of what a null pointer would point to lie below this address, where the kernel maps nothing.
constexpr uintptr_t NULL_PAGES = 1 << 16;

void on_trap(int number, siginfo_t * info, void * context);

pyg::SignalSlot  g_traps[] = {{SIGFPE, on_trap}, {SIGSEGV, on_trap}};
std::mutex       g_traps_mutex;
int              g_scopes = 0;
thread_local int t_scopes = 0;

bool is_null_pointer(const siginfo_t & info) {
    return info.si_code == SEGV_MAPERR && reinterpret_cast<uintptr_t>(info.si_addr) < NULL_PAGES;
}

bool is_division(const siginfo_t & info) { return info.si_code == FPE_INTDIV || info.si_code == FPE_INTOVF; }

void on_trap(int number, siginfo_t * info, void * context) {
    if (t_scopes > 0 && number == SIGFPE && is_division(*info)) {
        throw pyg::EngineAbort{"it divides by a size that is 0 in the file"};
    }
    if (t_scopes > 0 && number == SIGSEGV && is_null_pointer(*info)) {
        throw pyg::EngineAbort{"it takes a tensor for granted that the file does not have"};
    }
    for (const pyg::SignalSlot & trap : g_traps) {
        if (trap.number() == number) {
            trap.hand_on(info, context);
        }
    }
}

void restore() {
    for (pyg::SignalSlot & trap : g_traps) {
        trap.restore();
    }
}

}  // namespace

namespace pyg {

TrapScope::TrapScope() noexcept {
    std::lock_guard<std::mutex> lock(g_traps_mutex);
    if (g_scopes++ == 0) {
        for (SignalSlot & trap : g_traps) {
            trap.install();
        }
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
