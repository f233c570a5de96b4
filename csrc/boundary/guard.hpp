// Boundary between engine and caller: every failure inside becomes a pyg_status.
//
// guard() turns three kinds of failures into a filled pyg_error:
//   - a failed check of our own:            throw fail(PYG_ERR_..., "...")
//   - a C++ exception:                      std::exception, std::bad_alloc
//   - a failed GGML_ASSERT:                 ggml calls our abort callback, which throws EngineAbort while a guard is
//                                           active on this thread, and unwinds through ggml's frames
// A failure on one of ggml's compute threads is thrown on the thread that started the graph
// (kernels/backend/compute_threads.h). An assert on any other thread without a guard still aborts the process.
#pragma once

#include "boundary/non_copyable.hpp"
#include "pyggml.h"

#include <cstdarg>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace pyg {

// Exception of our own code. Caught by guard() only.
struct Failure {
    pyg_code    code;
    std::string message;
    uint64_t    required_bytes  = 0;
    uint64_t    available_bytes = 0;
};

// Exception of the abort callback. Deliberately not a std::exception, which upstream catches in places where it would
// mistake a failed assert for an ordinary failure.
struct EngineAbort {
    std::string message;  // includes earlier errors of the engine: only they contain CUDA's reason
};

Failure failure_of(const EngineAbort & abort);

[[gnu::format(printf, 2, 3)]] Failure fail(pyg_code code, const char * format, ...);

// "3.81 MB": decimal prefixes, three digits. Same rule as bytes_text in pyggml/units.py.
std::string bytes_text(uint64_t n);

Failure fail_out_of_memory(const std::string & what, uint64_t required_bytes, uint64_t available_bytes);

// Copy a string for a caller who frees it with pyg_string_free.
char * owned_copy(const std::string & text);

// True while this thread runs inside guard(), so that the abort callback may throw.
bool guarded() noexcept;

// Abort callback of the engine: throws EngineAbort where a guard will catch it.
void on_engine_abort(const char * message);

// Install the engine's callbacks (log, abort) and fork detection; once per process.
void install_runtime();

// Number of forks between the process that loaded the module and this one.
uint64_t fork_generation() noexcept;

// While it lives, failed asserts on this thread throw, and the engine's warnings and errors on this thread are
// collected for the error message.
class GuardScope : NonCopyable {
  public:
    GuardScope() noexcept;
    ~GuardScope();

  private:
    GuardScope * outer_;
    std::string  messages_;

    friend std::string engine_error_text();
    friend void        add_engine_error(const char * line);
};

// The engine's warnings and errors inside this thread's innermost guard, joined by "; "; "" if there were none.
std::string engine_error_text();

// Add a line to engine_error_text(). Called by the log callback.
void add_engine_error(const char * line);

pyg_status report(pyg_error * err, const Failure & failure) noexcept;
pyg_status report(pyg_error * err, pyg_code code, const char * message) noexcept;
void       clear(pyg_error * err) noexcept;

// Report the current exception. Works without free memory.
pyg_status report_exception(pyg_error * err) noexcept;

template <class Body>
pyg_status guard(pyg_error * err, Body && body) noexcept {
    clear(err);
    try {
        GuardScope scope;
        body();
        return PYG_OK;
    } catch (...) {
        return report_exception(err);
    }
}

// Leak an object on purpose. Allocates nothing, because memory may have run out.
template <class T>
void leak_object(T && object) noexcept {
    static_assert(!std::is_reference_v<T>, "to be moved from");
    alignas(T) unsigned char never_destroyed[sizeof(T)];
    new (never_destroyed) T(std::move(object));
}

// Base of every object behind a pyg_* pointer: a lock that serialises calls, closed and poisoned flags, fork detection,
// and a count of live handles.
class Handle : NonCopyable {
  public:
    explicit Handle(pyg_handle_kind kind) noexcept;
    ~Handle();

    // Check it before taking the lock: in a forked child, the thread that holds it may no longer exist.
    void require_same_process() const;
    void require_usable() const;  // with the lock held: neither closed nor poisoned

    bool inherited() const noexcept { return generation_ != fork_generation(); }

    mutable std::mutex mutex;
    bool               closed   = false;
    bool               poisoned = false;

  private:
    pyg_handle_kind kind_;
    uint64_t        generation_;
};

// Handle of an object that is owned or shared by a smart pointer.
template <class Pointer, pyg_handle_kind KIND>
struct PointerHandle : Handle {
    Pointer object;

    explicit PointerHandle(Pointer made) : Handle(KIND), object(std::move(made)) {}
    void release() { object.reset(); }
    void leak() { leak_object(std::move(object)); }
};

// Lock a handle, run body(handle), or body(object) for a PointerHandle, and return its result. Call it inside a guard.
template <class H, class Body>
auto with_lock(H * handle, Body && body) {
    if (!handle) {
        throw fail(PYG_ERR_CLOSED, "the object has been closed");
    }
    handle->require_same_process();
    std::lock_guard<std::mutex> turn(handle->mutex);
    handle->require_usable();
    try {
        if constexpr (std::is_invocable_v<Body, H &>) {
            return body(*handle);
        } else {
            return body(*handle->object);
        }
    } catch (const EngineAbort &) {
        handle->poisoned = true;
        throw;
    }
}

// with_lock inside its own guard.
template <class H, class Body>
pyg_status with(H * handle, pyg_error * err, Body && body) noexcept {
    return guard(err, [&] { with_lock(handle, body); });
}

// The object behind a handle, to be used without the handle's lock.
template <class H>
auto shared_object(H * handle) {
    return with_lock(handle, [](H & locked) { return locked.object; });
}

// Close a handle once. H::release() frees its objects; if it is poisoned, H::leak() leaks its engine objects instead.
template <class H>
pyg_status close(H * handle, pyg_error * err) noexcept {
    return guard(err, [&] {
        if (!handle || handle->inherited()) {
            return;
        }
        std::lock_guard<std::mutex> turn(handle->mutex);
        if (handle->closed) {
            return;
        }
        handle->closed = true;
        if (handle->poisoned) {
            handle->leak();
        } else {
            handle->release();
        }
    });
}

// Close and delete a handle. In a forked child its engine objects are leaked, because their threads and locks belong to
// the parent.
template <class H>
void free_handle(H * handle) noexcept {
    if (!handle) {
        return;
    }
    if (handle->inherited()) {
        handle->leak();
    } else {
        pyg_error ignored;
        close(handle, &ignored);
    }
    delete handle;
}

}  // namespace pyg
