#include "boundary/large_stack.hpp"

#include "boundary/guard.hpp"
#include "boundary/native_threads.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace {

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
constexpr size_t BYTES_PER_CHAR = 1024;  // measured: 200 to 400, whatever the pattern
#else
constexpr size_t BYTES_PER_CHAR = 16384;
#endif
constexpr size_t SHORT_TEXT = (512 << 10) / BYTES_PER_CHAR;  // bytes that fit any thread's stack
constexpr size_t BASE       = 1 << 20;

thread_local const char * t_half = nullptr;  // the middle of this thread's stack, which grows downwards

// Reserved address space, backed by memory only where touched, with a guard page below.
class Stack : pyg::NonCopyable {
  public:
    explicit Stack(size_t size) : guard_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
        size_ = (size + guard_ - 1) / guard_ * guard_ + guard_;
        base_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base_ == MAP_FAILED) {
            throw pyg::fail_out_of_memory("the stack for matching a text of this length", size_,
                                          pyg_memory_available());
        }
        mprotect(base_, guard_, PROT_NONE);
    }
    ~Stack() { munmap(base_, size_); }

    void * low() const { return static_cast<char *>(base_) + guard_; }
    size_t size() const { return size_ - guard_; }

  private:
    size_t guard_;
    size_t size_;
    void * base_;
};

struct Call {
    const std::function<void()> & body;
    const char *                  half;
    pyg_error                     error;
};

void * run(void * call) {
    auto & j = *static_cast<Call *>(call);
    t_half   = j.half;
    pyg::guard(&j.error, j.body);
    return nullptr;
}

void run_on(const Stack & stack, Call & call) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack.low(), stack.size());
    pthread_t thread;
    int       refused;
    {
        const pyg::SignalsBlocked signals_go_to_the_callers_threads;
        refused = pthread_create(&thread, &attributes, run, &call);
    }
    pthread_attr_destroy(&attributes);
    if (refused) {
        throw std::system_error(refused, std::generic_category(), "a thread with a larger stack");
    }
    pthread_join(thread, nullptr);
}

}  // namespace

namespace pyg {

void with_stack_for(size_t text_bytes, const std::function<void()> & body) {
    text_bytes <= SHORT_TEXT ? body() : on_large_stack(text_bytes, body);
}

void on_large_stack(size_t text_bytes, const std::function<void()> & body, size_t spare) {
    const size_t needed = BASE + text_bytes * BYTES_PER_CHAR;
    const Stack  stack(needed + spare);
    Call         call = {body, static_cast<const char *>(stack.low()) + spare + needed / 2, {}};
    run_on(stack, call);
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
