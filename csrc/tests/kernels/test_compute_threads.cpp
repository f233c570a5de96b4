// Failures on compute threads: the call that computes the graph reports the error, and the threads compute the next.
#include "boundary/handles.hpp"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "pyggml.h"
#include "tests/support/testing.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <thread>
#include <vector>

namespace {

constexpr int N_THREADS = 3;
constexpr int N_VALUES  = 64;

using Body = std::function<void(int ith)>;

// A graph of three nodes: a sum, in which threads meet at barriers, one that runs `body` on each thread, and a sum.
class Graph {
  public:
    explicit Graph(Body body) : body_(std::move(body)), context_(ggml_init({1 << 20, nullptr, false})) {
        ggml_tensor * const ones = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, N_VALUES);
        ggml_set_f32(ones, 1);
        ggml_tensor * const two = ggml_add(context_.get(), ones, ones);
        ggml_tensor * const same =
            ggml_map_custom1(context_.get(), two, on_node, GGML_N_TASKS_MAX, static_cast<void *>(this));
        sum_   = ggml_add(context_.get(), same, ones);
        graph_ = ggml_new_graph(context_.get());
        ggml_build_forward_expand(graph_, sum_);
    }

    pyg_status compute(ggml_threadpool * pool, pyg_error & err) {
        return pyg::guard(&err, [&] {
            ggml_cplan plan = ggml_graph_plan(graph_, N_THREADS, pool);
            work_.resize(plan.work_size);
            plan.work_data = work_.data();
            ggml_graph_compute(graph_, &plan);
        });
    }

    bool is_right() const {
        const float * const values = ggml_get_data_f32(sum_);
        for (int i = 0; i < N_VALUES; i++) {
            if (values[i] != 3) {
                return false;
            }
        }
        return true;
    }

  private:
    static void on_node(ggml_tensor * dst, const ggml_tensor * src, int ith, int, void * self) {
        if (ith == 0) {
            std::memcpy(dst->data, src->data, ggml_nbytes(dst));
        }
        static_cast<Graph *>(self)->body_(ith);
    }

    Body                 body_;
    ggml_context_ptr     context_;
    ggml_cgraph *        graph_;
    ggml_tensor *        sum_;
    std::vector<uint8_t> work_;
};

struct Pool {
    ggml_threadpool * raw = pyg::new_threads(N_THREADS);
    ~Pool() { pyg::free_threads(raw); }
};

void test_any_thread_may_fail_and_the_pool_goes_on() {
    Pool      pool;
    pyg_error err;
    Graph     good([](int) {});
    for (int round = 0; round < 30; round++) {
        const int failing = round % N_THREADS;
        Graph     bad([&](int ith) {
            if (ith == failing) {
                GGML_ABORT("thread %d", ith);
            }
        });
        CHECK(bad.compute(pool.raw, err) == PYG_ERR_ENGINE);
        CHECK(std::strstr(err.message, ("thread " + std::to_string(failing)).c_str()));
        CHECK_OK(good.compute(pool.raw, err), err);
        CHECK(good.is_right());
    }
}

void test_all_threads_may_fail_at_once() {
    Pool      pool;
    pyg_error err;
    Graph     good([](int) {}), bad([](int) { GGML_ASSERT(2 + 2 == 5); });
    for (int round = 0; round < 30; round++) {
        CHECK(bad.compute(pool.raw, err) == PYG_ERR_ENGINE);
        CHECK(std::strstr(err.message, "2 + 2 == 5"));
        CHECK_OK(good.compute(pool.raw, err), err);
        CHECK(good.is_right());
    }
}

void test_exceptions_keep_their_kind() {
    Pool      pool;
    pyg_error err;
    Graph     bad([](int ith) {
        if (ith == N_THREADS - 1) {
            throw std::bad_alloc();
        }
    });
    CHECK(bad.compute(pool.raw, err) == PYG_ERR_OUT_OF_MEMORY);
}

void test_threads_made_for_one_graph() {
    pyg_error err;
    Graph     good([](int) {}), bad([](int ith) { GGML_ASSERT(ith != 2); });
    for (int round = 0; round < 5; round++) {
        CHECK(bad.compute(nullptr, err) == PYG_ERR_ENGINE);
        CHECK(std::strstr(err.message, "ith != 2"));
        CHECK_OK(good.compute(nullptr, err), err);
        CHECK(good.is_right());
    }
}

void test_pools_fail_beside_each_other() {
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 2; caller++) {
        callers.emplace_back([caller] {
            Pool      pool;
            pyg_error err;
            Graph     good([](int) {}), bad([&](int ith) { GGML_ASSERT(ith != caller); });
            for (int round = 0; round < 10; round++) {
                CHECK(bad.compute(pool.raw, err) == PYG_ERR_ENGINE);
                CHECK_OK(good.compute(pool.raw, err), err);
                CHECK(good.is_right());
            }
        });
    }
    for (std::thread & caller : callers) {
        caller.join();
    }
}

// Calls of the raw functions, which cannot report an error.
void test_without_a_guard_the_process_ends() {
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none = {};
        setrlimit(RLIMIT_CORE, &none);
        ggml_threadpool_params params = ggml_threadpool_params_default(N_THREADS);
        ggml_threadpool *      pool   = ggml_threadpool_new(&params);
        ggml_context_ptr       context(ggml_init({1 << 20, nullptr, false}));
        ggml_tensor * const    one = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 1);
        ggml_tensor * const    bad = ggml_map_custom1(
            context.get(), one, [](ggml_tensor *, const ggml_tensor *, int ith, int, void *) { GGML_ASSERT(ith != 1); },
            GGML_N_TASKS_MAX, nullptr);
        ggml_cgraph * const graph = ggml_new_graph(context.get());
        ggml_build_forward_expand(graph, bad);
        ggml_cplan           plan = ggml_graph_plan(graph, N_THREADS, pool);
        std::vector<uint8_t> work(plan.work_size);
        plan.work_data = work.data();
        ggml_graph_compute(graph, &plan);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int n_threads_now() {
    int n = 0;
    for (const auto & task : std::filesystem::directory_iterator("/proc/self/task")) {
        n += task.is_directory();
    }
    return n;
}

}  // namespace

namespace {

std::atomic<int> g_n_threads_left{-1};  // that may be started; -1: any number

}  // namespace

// In place of the C library's.
extern "C" int __real_pthread_create(pthread_t *, const pthread_attr_t *, void * (*)(void *), void *);
extern "C" int __wrap_pthread_create(pthread_t * thread, const pthread_attr_t * attributes, void * (*run)(void *),
                                     void * data) {
    if (g_n_threads_left == 0) {
        return EAGAIN;
    }
    if (g_n_threads_left > 0) {
        g_n_threads_left--;
    }
    return __real_pthread_create(thread, attributes, run, data);
}

namespace {

void test_threads_that_cannot_be_started() {
    const int before = n_threads_now();
    pyg_error err;
    for (int n = 0; n < N_THREADS - 1; n++) {
        g_n_threads_left = n;
        CHECK(pyg::guard(&err, [] { pyg::new_threads(N_THREADS); }) == PYG_ERR_ENGINE);
        CHECK(std::strstr(err.message, "no more threads can be started"));
        CHECK(std::strstr(err.message, ("only " + std::to_string(n + 1) + " of 3").c_str()));
        CHECK(n_threads_now() == before);
    }
    g_n_threads_left = -1;
    Pool  pool;
    Graph good([](int) {});
    CHECK_OK(good.compute(pool.raw, err), err);
    CHECK(good.is_right());
}

}  // namespace

int main() {
    pyg_error err;
    CHECK_OK(pyg_init("", "", &err), err);
    test_any_thread_may_fail_and_the_pool_goes_on();
    test_all_threads_may_fail_at_once();
    test_exceptions_keep_their_kind();
    test_threads_made_for_one_graph();
    test_pools_fail_beside_each_other();
    test_without_a_guard_the_process_ends();
    test_threads_that_cannot_be_started();
    return 0;
}
