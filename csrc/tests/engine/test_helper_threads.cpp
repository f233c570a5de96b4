// Work between forward passes is done exactly once per item, in parallel where it is worth it. argv[1]: a model.
#include "engine/threads/helper_threads.hpp"
#include "pyggml.h"
#include "tests/support/testing.hpp"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

namespace {

constexpr double MUCH = 1, LITTLE = 1e-6;  // seconds

std::atomic<bool> g_no_more_threads{false};

}  // namespace

// Replaces the C library's function.
extern "C" int __real_pthread_create(pthread_t *, const pthread_attr_t *, void * (*)(void *), void *);
extern "C" int __wrap_pthread_create(pthread_t * thread, const pthread_attr_t * attributes, void * (*run)(void *),
                                     void * data) {
    return g_no_more_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, data);
}

namespace {

struct Opened {
    pyg_model *   model   = nullptr;
    pyg_context * context = nullptr;

    explicit Opened(const char * path, int32_t n_threads) {
        pyg_error               err;
        const pyg_model_options model_options = pyg_model_default_options();
        CHECK_OK(pyg_model_new(path, &model_options, &model, &err), err);
        pyg_context_options options = pyg_context_default_options();
        options.n_ctx               = 256;
        options.n_threads           = n_threads;
        CHECK_OK(pyg_context_new(model, &options, &context, &err), err);
    }
    ~Opened() {
        pyg_context_free(context);
        pyg_model_free(model);
    }
    pyg::Context & raw() const { return *context->object; }
};

void test_each_is_done_once(pyg::HelperThreads & helpers) {
    for (const size_t n : {0, 1, 2, 3, 7, 100}) {
        for (const double seconds : {LITTLE, MUCH}) {
            std::vector<std::atomic<int>> n_done(n);
            helpers.for_each(n, seconds, [&](size_t i) { n_done[i]++; });
            for (const auto & for_each : n_done) {
                CHECK(for_each == 1);
            }
        }
    }
}

// None ends before all have started.
void test_several_do_it_at_the_same_time(pyg::HelperThreads & helpers, size_t n_threads) {
    for (int round = 0; round < 20; round++) {
        std::atomic<size_t> n_begun{0};
        const auto          end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        helpers.for_each(n_threads, MUCH, [&](size_t) {
            n_begun++;
            while (n_begun < n_threads && std::chrono::steady_clock::now() < end) {
                std::this_thread::yield();
            }
        });
        CHECK(n_begun == n_threads && std::chrono::steady_clock::now() < end);
    }
}

void expect_alone(pyg::HelperThreads & helpers, double seconds) {
    const auto here = std::this_thread::get_id();
    helpers.for_each(20, seconds, [&](size_t) { CHECK(std::this_thread::get_id() == here); });
}

// The context computes between two calls, with the same threads.
void test_the_context_goes_on(const Opened & opened, pyg::HelperThreads & helpers) {
    pyg_error     err;
    const int32_t token_ids[] = {5, 6, 7};
    for (int round = 0; round < 20; round++) {
        CHECK_OK(pyg_context_memory_clear(opened.context, false, &err), err);
        const pyg_batch batch = {3, token_ids, nullptr, nullptr, nullptr};
        int32_t         n_outputs;
        CHECK_OK(pyg_context_decode(opened.context, &batch, &n_outputs, &err), err);
        test_each_is_done_once(helpers);
    }
}

void test_threads_that_cannot_be_started(const Opened & opened) {
    pyg::HelperThreads helpers(opened.raw(), 3);
    g_no_more_threads = true;
    expect_alone(helpers, MUCH);
    g_no_more_threads = false;
    test_each_is_done_once(helpers);
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    pyg_error err;
    CHECK_OK(pyg_init("", "", &err), err);
    const Opened       three(argv[1], 3), one(argv[1], 1);
    pyg::HelperThreads of_the_context(three.raw(), 0), own(one.raw(), 3), single(one.raw(), 0);
    for (pyg::HelperThreads * helpers : {&of_the_context, &own}) {
        test_each_is_done_once(*helpers);
        test_several_do_it_at_the_same_time(*helpers, 3);
        expect_alone(*helpers, LITTLE);
    }
    expect_alone(single, MUCH);
    test_the_context_goes_on(three, of_the_context);
    test_threads_that_cannot_be_started(one);
    return 0;
}
