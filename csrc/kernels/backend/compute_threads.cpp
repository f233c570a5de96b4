// C++ part of upstream_ggml_cpu.c: exceptions.
#include "kernels/backend/compute_threads.h"

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace {

static_assert(sizeof(std::exception_ptr) == sizeof(pyg_reason::pointer));

bool (*g_is_guarded)() = nullptr;

// Another thread of the graph has failed.
struct GraphLeft {};

std::exception_ptr & in(pyg_reason * reason) { return *reinterpret_cast<std::exception_ptr *>(reason); }

}  // namespace

void pyg_compute_threads_guard(bool (*is_guarded)(void)) { g_is_guarded = is_guarded; }

bool pyg_is_guarded(void) { return g_is_guarded && g_is_guarded(); }

bool pyg_run_catching(void * (*run)(void *), void * data, pyg_reason * reason) {
    try {
        run(data);
        return false;
    } catch (...) {
        new (reason) std::exception_ptr(std::current_exception());
        return true;
    }
}

void pyg_throw(pyg_reason * reason) {
    const std::exception_ptr exception = std::exchange(in(reason), nullptr);
    std::rethrow_exception(exception);
}

void pyg_release_reason(pyg_reason * reason) { in(reason) = nullptr; }

void pyg_leave_graph(void) { throw GraphLeft{}; }

void pyg_throw_no_memory(void) { throw std::bad_alloc(); }

void pyg_throw_no_threads(int error, int n_started, int n_wanted) {
    throw std::system_error(error, std::generic_category(),
                            "only " + std::to_string(n_started) + " of " + std::to_string(n_wanted) +
                                " compute threads could be started");
}
