// The boundary between the engine and the caller: every failure inside becomes a pyg_status.
//
// Three things can go wrong below us, and guard() turns each into a filled pyg_error:
//   - we refuse something ourselves:       throw fail(PYG_ERR_..., "...")
//   - C++ code throws:                      std::exception, std::bad_alloc
//   - upstream's GGML_ASSERT fails:         ggml calls our abort callback, which throws EngineAbort while a guard
//                                           is up on this thread, and so unwinds through ggml's frames
// What fails on one of ggml's compute threads is thrown on the thread that asked for the graph
// (kernels/backend/compute_threads.h). An assert on a thread that has neither still ends the process: there is no frame
// of ours to return to.
#pragma once

#include "pyggml.h"

#include <cstdarg>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace pyg {

// What our own code throws. Caught by guard() only.
struct Failure {
    pyg_code    code;
    std::string message;
    uint64_t    required_bytes  = 0;
    uint64_t    available_bytes = 0;
};

// What the abort callback throws. Deliberately not a std::exception: upstream catches those in places where it would
// mistake a failed assert for an ordinary failure.
struct EngineAbort {
    std::string message;  // after what the engine said before it gave up: CUDA's reason is only there
};

Failure failure_of(const EngineAbort & abort);

[[gnu::format(printf, 2, 3)]] Failure fail(pyg_code code, const char * format, ...);

// "3.81 MB": decimal prefixes, three digits. bytes_text in pyggml/units.py has the same rule.
std::string bytes_text(uint64_t n);

Failure fail_out_of_memory(const std::string & what, uint64_t required_bytes, uint64_t available_bytes);

// True while this thread runs inside guard(): the abort callback may throw.
bool guarded() noexcept;

// The engine's abort callback: throws EngineAbort where a guard will catch it.
void on_engine_abort(const char * message);

// Starts the engine's callbacks (log, abort) and fork detection; once per process.
void install_runtime();

// Number of forks between the process that loaded the module and this one.
uint64_t fork_generation() noexcept;

// While it lives, failed asserts on this thread throw, and the engine's warnings and errors on this thread are kept for
// the error message.
class GuardScope {
  public:
    GuardScope() noexcept;
    ~GuardScope();
    GuardScope(const GuardScope &)             = delete;
    GuardScope & operator=(const GuardScope &) = delete;

  private:
    GuardScope * outer_;
    std::string  messages_;

    friend std::string engine_error_text();
    friend void        add_engine_error(const char * line);
};

// The engine's warnings and errors inside this thread's innermost guard, joined by "; "; "" if there were none.
std::string engine_error_text();

// Adds a line to engine_words(). Called by the log callback.
void add_engine_error(const char * line);

pyg_status report(pyg_error * err, const Failure & failure) noexcept;
pyg_status report(pyg_error * err, pyg_code code, const char * message) noexcept;
void       clear(pyg_error * err) noexcept;

// Of the exception that is being handled. Memory may be what there is none of.
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

// Leaks what an object owns or shares, without memory of its own: the lack of it may be why.
template <class T>
void leak_object(T && object) noexcept {
    static_assert(!std::is_reference_v<T>, "to be moved from");
    alignas(T) unsigned char never_destroyed[sizeof(T)];
    new (never_destroyed) T(std::move(object));
}

// What every object behind a pyg_* pointer has: a lock that serialises calls, flags for closed and poisoned, detection
// of forks, and a count.
class Handle {
  public:
    explicit Handle(pyg_handle_kind kind) noexcept;
    ~Handle();
    Handle(const Handle &)             = delete;
    Handle & operator=(const Handle &) = delete;

    // Checked before taking the lock: in a forked child a thread that no longer exists may hold it.
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

// Runs body(handle) with the handle locked and returns its result. Call it inside a guard. H derives from Handle.
template <class H, class Body>
auto with_lock(H * handle, Body && body) {
    if (!handle) {
        throw fail(PYG_ERR_CLOSED, "the object has been closed");
    }
    handle->require_same_process();
    std::lock_guard<std::mutex> turn(handle->mutex);
    handle->require_usable();
    try {
        return body(*handle);
    } catch (const EngineAbort &) {
        handle->poisoned = true;
        throw;
    }
}

// take_turn inside a guard of its own.
template <class H, class Body>
pyg_status with(H * handle, pyg_error * err, Body && body) noexcept {
    return guard(err, [&] { with_lock(handle, body); });
}

// Closes a handle once: H::release() frees what it holds or, if it is poisoned, H::leak() forgets its engine objects
// without freeing them.
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

// Closes and deletes a handle; in a forked child its engine objects are leaked, because their threads and locks belong
// to the parent.
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
