#include "boundary/large_stack.hpp"

#include "boundary/guard.hpp"
#include "platform/platform.hpp"

namespace {

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
constexpr size_t BYTES_PER_CHAR = 1024;  // measured: 200 to 400, whatever the pattern
#else
constexpr size_t BYTES_PER_CHAR = 16384;
#endif
constexpr size_t SHORT_TEXT = (512 << 10) / BYTES_PER_CHAR;  // bytes that fit any thread's stack
constexpr size_t BASE       = 1 << 20;

thread_local const char * t_half = nullptr;  // the middle of this thread's stack, which grows downwards

struct Call {
    const std::function<void()> & body;
    size_t                        half;  // offset in the stack
    pyg_error                     error;
};

void run(void * call, const char * low) {
    auto & j = *static_cast<Call *>(call);
    t_half   = low + j.half;
    pyg::guard(&j.error, j.body);
}

}  // namespace

namespace pyg {

void with_stack_for(size_t text_bytes, const std::function<void()> & body) {
    text_bytes <= SHORT_TEXT ? body() : on_large_stack(text_bytes, body);
}

void on_large_stack(size_t text_bytes, const std::function<void()> & body, size_t spare) {
    const size_t needed = BASE + text_bytes * BYTES_PER_CHAR;
    Call         call   = {body, spare + needed / 2, {}};
    try {
        platform::run_on_stack(needed + spare, run, &call);
    } catch (const platform::StackRefused & refused) {
        throw fail_out_of_memory("the stack for matching a text of this length", refused.bytes, pyg_memory_available());
    }
    if (call.error.code != PYG_OK) {
        throw Failure{static_cast<pyg_code>(call.error.code), call.error.message, call.error.required_bytes,
                      call.error.available_bytes};
    }
}

bool stack_half_used() noexcept {
    const char here = 0;
    return t_half && &here < t_half;
}

}  // namespace pyg
