// Conversion of failures inside the engine to a status, and the base of handles.
#include "boundary/guard.hpp"

#include "boundary/backend_loader.hpp"
#include "boundary/engine_messages.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <system_error>

namespace {

std::atomic<int64_t> g_live[PYG_HANDLE_KINDS];

thread_local pyg::GuardScope * t_guard = nullptr;

// Earlier errors of the engine, and the message of the failed assert.
std::string reason(const char * message) {
    try {
        const std::string messages = pyg::engine_error_text();
        std::string       text     = messages.empty() ? message : messages + "; " + message;
        text.erase(text.find_last_not_of('\n') + 1);  // some of upstream's messages end with a new line
        return text;
    } catch (const std::bad_alloc &) {
        return "out of memory";  // short enough to need no allocation
    }
}

// Most often thrown when the system refuses to start a thread.
pyg::Failure failure_of(const std::system_error & error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
        return {PYG_ERR_ENGINE, error.what()};
    }
    return pyg::fail(PYG_ERR_ENGINE,
                     "no more threads can be started (%s): this process, user or container has as many as it may have "
                     "(ulimit -u, pids.max); end some, or load with a smaller n_threads",
                     error.what());
}

pyg_status report_current(pyg_error * err) {
    try {
        throw;
    } catch (const pyg::Failure & failure) {
        return report(err, failure);
    } catch (const pyg::EngineAbort & abort) {
        return report(err, pyg::failure_of(abort));
    } catch (const std::bad_alloc &) {
        return pyg::report(err, PYG_ERR_OUT_OF_MEMORY, "an allocation failed");
    } catch (const std::system_error & e) {
        return report(err, failure_of(e));
    } catch (const std::exception & e) {
        return pyg::report(err, PYG_ERR_ENGINE, e.what());
    } catch (...) {
        return pyg::report(err, PYG_ERR_ENGINE, "the engine threw an unknown exception");
    }
}

// Return the length of the longest prefix of at most `limit` bytes that does not end inside a UTF-8 character.
size_t utf8_prefix(const char * text, size_t limit) {
    size_t n = strnlen(text, limit + 1);
    if (n <= limit) {
        return n;
    }
    n = limit;
    while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) {
        n--;
    }
    return n;
}

}  // namespace

namespace pyg {

Failure fail(pyg_code code, const char * format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    std::string message(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, args)), '\0');
    std::vsnprintf(message.data(), message.size() + 1, format, again);
    va_end(again);
    va_end(args);
    return {code, std::move(message)};
}

std::string bytes_text(uint64_t n) {
    constexpr const char * UNITS[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    constexpr size_t       LAST    = std::size(UNITS) - 1;
    double                 value   = static_cast<double>(n);
    size_t                 power   = 0;
    for (; value >= 999.5 && power < LAST; power++) {
        value /= 1000;
    }
    const int decimals = power == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    char      text[32];
    std::snprintf(text, sizeof(text), "%.*f %s", decimals, value, UNITS[power]);
    return text;
}

char * owned_copy(const std::string & text) {
    char * copy = static_cast<char *>(std::malloc(text.size() + 1));
    if (!copy) {
        throw std::bad_alloc();
    }
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

Failure fail_out_of_memory(const std::string & what, uint64_t required_bytes, uint64_t available_bytes) {
    Failure failure = fail(PYG_ERR_OUT_OF_MEMORY, "%s needs %s of memory, but only %s is available", what.c_str(),
                           bytes_text(required_bytes).c_str(), bytes_text(available_bytes).c_str());
    failure.required_bytes  = required_bytes;
    failure.available_bytes = available_bytes;
    return failure;
}

Failure failure_of(const EngineAbort & abort) {
    const bool no_memory = failure_cause(abort.message).kind == FailureCause::NO_MEMORY;
    return fail(no_memory ? PYG_ERR_OUT_OF_MEMORY : PYG_ERR_ENGINE, "a check inside the engine failed: %s",
                abort.message.c_str());
}

void on_engine_abort(const char * message) {
    if (guarded() || compute_thread_may_throw()) {
        throw EngineAbort{reason(message)};
    }
    std::fprintf(stderr, "pyggml: a check inside the engine failed outside of any call that could report it: %s\n",
                 message);
}

bool guarded() noexcept { return t_guard != nullptr; }

GuardScope::GuardScope() noexcept : outer_(t_guard) { t_guard = this; }

GuardScope::~GuardScope() { t_guard = outer_; }

std::string engine_error_text() { return t_guard ? t_guard->messages_ : std::string(); }

void add_engine_error(const char * line) {
    constexpr size_t ENOUGH = 1024;
    if (!t_guard || t_guard->messages_.size() > ENOUGH) {
        return;
    }
    if (!t_guard->messages_.empty()) {
        t_guard->messages_ += "; ";
    }
    t_guard->messages_ += line;
}

void clear(pyg_error * err) noexcept {
    err->code            = PYG_OK;
    err->required_bytes  = 0;
    err->available_bytes = 0;
    err->message[0]      = '\0';
}

pyg_status report(pyg_error * err, const Failure & failure) noexcept {
    report(err, failure.code, failure.message.c_str());
    err->required_bytes  = failure.required_bytes;
    err->available_bytes = failure.available_bytes;
    return failure.code;
}

pyg_status report(pyg_error * err, pyg_code code, const char * message) noexcept {
    clear(err);
    err->code      = code;
    const size_t n = utf8_prefix(message, sizeof(err->message) - 1);
    std::memcpy(err->message, message, n);
    err->message[n] = '\0';
    return code;
}

pyg_status report_exception(pyg_error * err) noexcept {
    try {
        return report_current(err);
    } catch (...) {
        return report(err, PYG_ERR_OUT_OF_MEMORY, "an allocation failed, and so did that of its error message");
    }
}

Handle::Handle(pyg_handle_kind kind) noexcept : kind_(kind), generation_(fork_generation()) { g_live[kind_]++; }

Handle::~Handle() { g_live[kind_]--; }

void Handle::require_same_process() const {
    if (inherited()) {
        throw fail(PYG_ERR_ENGINE, "this object was made before a fork and belongs to the parent process: make a new "
                                   "one in the child, or start the child with the 'spawn' method");
    }
}

void Handle::require_usable() const {
    if (closed) {
        throw fail(PYG_ERR_CLOSED, "the object has been closed");
    }
    if (poisoned) {
        throw fail(PYG_ERR_ENGINE, "a check inside the engine failed during an earlier call, so this object can no "
                                   "longer be used: close it and make a new one");
    }
}

}  // namespace pyg

void pyg_string_free(char * string) { std::free(string); }

int64_t pyg_live_handles(enum pyg_handle_kind kind) {
    return kind >= 0 && kind < PYG_HANDLE_KINDS ? g_live[kind].load() : 0;
}
