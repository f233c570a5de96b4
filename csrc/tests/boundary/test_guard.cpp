// Failures inside the engine become a status and a message, and the process survives.
#include "../ggml/src/ggml-threading.h"
#include "boundary/guard.hpp"
#include "boundary/large_stack.hpp"
#include "ggml-cpp.h"
#include "tests/support/testing.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace {

using pyg::fail;

bool contains(const pyg_error & err, const char * words) { return std::strstr(err.message, words) != nullptr; }

struct Probe : pyg::Handle {
    int released = 0;
    int leaked   = 0;

    Probe() : Handle(PYG_HANDLE_BACKEND) {}
    void release() { released++; }
    void leak() { leaked++; }
};

void test_exceptions_become_codes() {
    pyg_error err;
    CHECK(pyg::guard(&err, [] {}) == PYG_OK);
    CHECK(err.code == PYG_OK && err.message[0] == '\0');

    CHECK(pyg::guard(&err, [] { throw fail(PYG_ERR_GRAMMAR, "rule %d", 7); }) == PYG_ERR_GRAMMAR);
    CHECK(std::strcmp(err.message, "rule 7") == 0);

    CHECK(pyg::guard(&err, [] { throw pyg::fail_out_of_memory("it", 10, 3); }) == PYG_ERR_OUT_OF_MEMORY);
    CHECK(err.required_bytes == 10 && err.available_bytes == 3);

    CHECK(pyg::guard(&err, [] { throw std::bad_alloc(); }) == PYG_ERR_OUT_OF_MEMORY);
    CHECK(err.required_bytes == 0 && err.available_bytes == 0);
    CHECK(pyg::guard(&err, [] { throw std::runtime_error("words"); }) == PYG_ERR_ENGINE);
    CHECK(contains(err, "words"));
    CHECK(pyg::guard(&err, [] { throw 5; }) == PYG_ERR_ENGINE);
}

void test_messages_are_cut_between_characters() {
    pyg_error         err;
    const std::string euros = std::string(sizeof(err.message), 'x') + "\u20ac";
    std::string       text;
    for (size_t i = 0; i < sizeof(err.message); i++) {
        text += "\u20ac";
    }
    CHECK(pyg::guard(&err, [&] { throw pyg::Failure{PYG_ERR_ENGINE, text}; }) == PYG_ERR_ENGINE);
    const size_t n = std::strlen(err.message);
    CHECK(n > sizeof(err.message) - 4 && n % 3 == 0);
    CHECK(pyg::guard(&err, [&] { throw pyg::Failure{PYG_ERR_ENGINE, euros}; }) == PYG_ERR_ENGINE);
    CHECK(std::strlen(err.message) == sizeof(err.message) - 1);
}

void test_a_failed_assert_is_an_error() {
    pyg_error err;
    for (int i = 0; i < 3; i++) {
        CHECK(pyg::guard(&err, [] { GGML_ASSERT(2 + 2 == 5); }) == PYG_ERR_ENGINE);
        CHECK(contains(err, "GGML_ASSERT(2 + 2 == 5) failed") && contains(err, "test_guard.cpp"));
    }
    CHECK(pyg::guard(&err, [] { GGML_ABORT("number %d", 7); }) == PYG_ERR_ENGINE);
    CHECK(contains(err, "number 7"));
}

// As CUDA's backend does when a pool cannot grow: the reason is in its log, the abort message has only the place.
void test_an_abort_for_want_of_memory() {
    pyg_error err;
    CHECK(pyg::guard(&err, [] {
              ggml_log_callback callback;
              void *            user_data;
              ggml_log_get(&callback, &user_data);
              callback(GGML_LOG_LEVEL_ERROR, "CUDA error: out of memory\n", user_data);
              GGML_ABORT("CUDA error");
          }) == PYG_ERR_OUT_OF_MEMORY);
    CHECK(contains(err, "out of memory") && contains(err, "test_guard.cpp"));
}

// Through frames of ggml's C code, which must be unwound.
void test_an_assert_inside_ggml() {
    pyg_error              err;
    const ggml_context_ptr context(ggml_init({1 << 20, nullptr, false}));
    CHECK(pyg::guard(&err, [&] {
              ggml_tensor * a = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 4, 2);
              ggml_tensor * b = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 5, 2);
              ggml_mul_mat(context.get(), a, b);
          }) == PYG_ERR_ENGINE);
    CHECK(contains(err, "ggml_can_mul_mat"));
}

void test_guards_nest() {
    pyg_error outer, inner;
    CHECK(pyg::guard(&outer, [&] {
              CHECK(pyg::guard(&inner, [] { GGML_ABORT("inner"); }) == PYG_ERR_ENGINE);
              CHECK(pyg::guarded());
              GGML_ABORT("outer");
          }) == PYG_ERR_ENGINE);
    CHECK(contains(inner, "inner") && contains(outer, "outer"));
    CHECK(!pyg::guarded());
}

void test_the_engines_words_are_heard() {
    pyg_error err;
    CHECK(pyg::guard(&err, [] {
              ggml_log_callback callback;
              void *            user_data;
              ggml_log_get(&callback, &user_data);
              callback(GGML_LOG_LEVEL_INFO, "not this\n", user_data);
              callback(GGML_LOG_LEVEL_ERROR, "half ", user_data);
              callback(GGML_LOG_LEVEL_CONT, "a line\n", user_data);
              callback(GGML_LOG_LEVEL_WARN, "another\n", user_data);
              throw fail(PYG_ERR_ENGINE, "%s", pyg::engine_error_text().c_str());
          }) == PYG_ERR_ENGINE);
    CHECK(std::strcmp(err.message, "half a line; another") == 0);
    CHECK(pyg::engine_error_text().empty());
}

void test_a_poisoned_handle_says_so_and_is_leaked() {
    pyg_error err;
    Probe     probe;
    CHECK(pyg::with(&probe, &err, [](Probe &) { throw std::runtime_error("harmless"); }) == PYG_ERR_ENGINE);
    CHECK(pyg::with(&probe, &err, [](Probe &) {}) == PYG_OK);
    CHECK(pyg::with(&probe, &err, [](Probe &) { GGML_ABORT("state unknown"); }) == PYG_ERR_ENGINE);
    CHECK(contains(err, "state unknown"));
    CHECK(pyg::with(&probe, &err, [](Probe &) { CHECK(false); }) == PYG_ERR_ENGINE);
    CHECK(contains(err, "earlier call"));
    CHECK(pyg::close(&probe, &err) == PYG_OK);
    CHECK(probe.leaked == 1 && probe.released == 0);
}

void test_closing() {
    pyg_error err;
    Probe     probe;
    CHECK(pyg::close(&probe, &err) == PYG_OK && pyg::close(&probe, &err) == PYG_OK);
    CHECK(probe.released == 1 && probe.leaked == 0);
    CHECK(pyg::with(&probe, &err, [](Probe &) { CHECK(false); }) == PYG_ERR_CLOSED);
    CHECK(pyg::with(static_cast<Probe *>(nullptr), &err, [](Probe &) { CHECK(false); }) == PYG_ERR_CLOSED);
    CHECK(pyg::close(static_cast<Probe *>(nullptr), &err) == PYG_OK);
    pyg::free_handle(static_cast<Probe *>(nullptr));
}

void test_closing_waits_for_a_call() {
    Probe             probe;
    std::atomic<bool> inside{false}, done{false};
    std::thread       caller([&] {
        pyg_error err;
        pyg::with(&probe, &err, [&](Probe &) {
            inside = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            done = true;
        });
    });
    while (!inside) {
        std::this_thread::yield();
    }
    pyg_error err;
    CHECK(pyg::close(&probe, &err) == PYG_OK);
    CHECK(done);
    caller.join();
}

void test_live_handles_are_counted() {
    const int64_t before = pyg_live_handles(PYG_HANDLE_BACKEND);
    auto *        probe  = new Probe();
    CHECK(pyg_live_handles(PYG_HANDLE_BACKEND) == before + 1);
    pyg::free_handle(probe);
    CHECK(pyg_live_handles(PYG_HANDLE_BACKEND) == before);
    CHECK(pyg_live_handles(PYG_HANDLE_KINDS) == 0);
}

// Exit status of a forked child that runs body(), negated when a signal ended it.
template <class Body>
int in_a_fork(Body && body) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void test_an_inherited_handle_is_refused() {
    Probe probe;
    CHECK(in_a_fork([&] {
              pyg_error err;
              CHECK(pyg::with(&probe, &err, [](Probe &) { CHECK(false); }) == PYG_ERR_ENGINE);
              CHECK(contains(err, "before a fork"));
              CHECK(pyg::close(&probe, &err) == PYG_OK);
              CHECK(probe.released == 0);
              Probe own;
              CHECK(pyg::with(&own, &err, [](Probe &) {}) == PYG_OK);
              auto * inherited = new Probe();
              CHECK(in_a_fork([&] { pyg::free_handle(inherited); }) == 0);
          }) == 0);
    pyg_error err;
    CHECK(pyg::with(&probe, &err, [](Probe &) {}) == PYG_OK);
}

// The engine creates graphs often, each time briefly under its own lock.
void test_a_fork_waits_for_the_engines_lock() {
    std::atomic<bool> is_held{false};
    std::thread       holder([&] {
        ggml_critical_section_start();
        is_held = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ggml_critical_section_end();
    });
    while (!is_held) {
        std::this_thread::yield();
    }
    CHECK(in_a_fork([] {
              alarm(20);
              ggml_free(ggml_init({1024, nullptr, true}));
          }) == 0);
    holder.join();
}

void test_an_assert_without_a_guard_ends_the_process() {
    CHECK(in_a_fork([] {
              CHECK(std::freopen("/dev/null", "w", stderr) != nullptr);
              GGML_ABORT("no guard catches this");
          }) == -SIGABRT);
}

// Large frames rather than many: the thread sanitizer supports about 60,000.
int recurse(int depth) {
    volatile char frame[3000] = {};
    return depth == 0 ? frame[0] : recurse(depth - 1) + frame[1] + 1;
}

void test_deep_stacks() {
    int depth = 0;
    pyg::with_stack_for(10, [&] { depth = recurse(100); });
    CHECK(depth == 100);
    pyg::with_stack_for(200'000, [&] { depth = recurse(20'000); });  // an ordinary stack overflows long before
    CHECK(depth == 20'000);

    pyg_error err;
    for (const size_t text_bytes : {10, 10'000}) {
        CHECK(pyg::guard(&err, [&] {
                  pyg::with_stack_for(text_bytes, [] { throw fail(PYG_ERR_GRAMMAR, "as it is"); });
              }) == PYG_ERR_GRAMMAR);
        CHECK(std::strcmp(err.message, "as it is") == 0);
        CHECK(pyg::guard(&err, [&] { pyg::with_stack_for(text_bytes, [] { GGML_ABORT("deep"); }); }) == PYG_ERR_ENGINE);
        CHECK(contains(err, "deep"));
    }
    CHECK(pyg::guard(&err, [&] { pyg::with_stack_for(size_t(1) << 50, [] {}); }) == PYG_ERR_OUT_OF_MEMORY);
}

}  // namespace

int main() {
    pyg_error err;
    CHECK_OK(pyg_init("", "", &err), err);
    test_exceptions_become_codes();
    test_messages_are_cut_between_characters();
    test_a_failed_assert_is_an_error();
    test_an_abort_for_want_of_memory();
    test_an_assert_inside_ggml();
    test_guards_nest();
    test_the_engines_words_are_heard();
    test_a_poisoned_handle_says_so_and_is_leaked();
    test_closing();
    test_closing_waits_for_a_call();
    test_live_handles_are_counted();
    test_an_inherited_handle_is_refused();
    test_a_fork_waits_for_the_engines_lock();
    test_an_assert_without_a_guard_ends_the_process();
    test_deep_stacks();
    return 0;
}
