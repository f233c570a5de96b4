#include "boundary/guard.hpp"
#include "boundary/signals/fault_signals.hpp"
#include "platform/linux_signal_handler.hpp"

#include <mutex>

namespace {

// Offsets from a null pointer lie below this address, where the kernel maps nothing.
constexpr uintptr_t NULL_PAGES = 1 << 16;

void on_fault(int number, siginfo_t * info, void * context);

pyg::SignalHandler g_handlers[] = {{SIGFPE, on_fault}, {SIGSEGV, on_fault}};
std::mutex         g_handlers_mutex;
int                g_scopes = 0;
thread_local int   t_scopes = 0;

bool is_null_pointer(const siginfo_t & info) {
    return info.si_code == SEGV_MAPERR && reinterpret_cast<uintptr_t>(info.si_addr) < NULL_PAGES;
}

bool is_division(const siginfo_t & info) { return info.si_code == FPE_INTDIV || info.si_code == FPE_INTOVF; }

void on_fault(int number, siginfo_t * info, void * context) {
    if (t_scopes > 0 && number == SIGFPE && is_division(*info)) {
        throw pyg::EngineAbort{"it divides by a size that is 0 in the file"};
    }
    if (t_scopes > 0 && number == SIGSEGV && is_null_pointer(*info)) {
        throw pyg::EngineAbort{"it uses a tensor that the file does not have"};
    }
    for (const pyg::SignalHandler & trap : g_handlers) {
        if (trap.number() == number) {
            trap.call_previous(info, context);
        }
    }
}

void restore() {
    for (pyg::SignalHandler & trap : g_handlers) {
        trap.restore();
    }
}

}  // namespace

namespace pyg {

FaultScope::FaultScope() noexcept {
    std::lock_guard<std::mutex> lock(g_handlers_mutex);
    if (g_scopes++ == 0) {
        for (SignalHandler & trap : g_handlers) {
            trap.install();
        }
    }
    t_scopes++;
}

FaultScope::~FaultScope() {
    std::lock_guard<std::mutex> lock(g_handlers_mutex);
    t_scopes--;
    if (--g_scopes == 0) {
        restore();
    }
}

void lock_fault_handlers_for_fork() { g_handlers_mutex.lock(); }
void unlock_fault_handlers_after_fork() { g_handlers_mutex.unlock(); }

void reset_fault_handlers_in_child() {
    if (g_scopes > 0 && t_scopes == 0) {
        restore();
    }
    g_scopes = t_scopes;
}

}  // namespace pyg
