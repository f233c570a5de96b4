// Several threads for what is done between two forward passes, such as choosing the next tokens of many requests.
#pragma once

#include "boundary/handles.hpp"
#include "ggml-cpu.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pyg {

// They are compute threads, each of which ggml lets do its share of a graph: here a graph of one node, which is ours.
// Those of the context still spin after its own graph, so that asking them costs microseconds. Where devices compute
// everything these would have to be woken, and go on spinning for nothing; there they are a few of its own, which sleep
// at once.
class HelperThreads {
  public:
    // `n_own`: how many of its own, this thread among them; 0: those of the context.
    HelperThreads(Context & context, int32_t n_own);
    ~HelperThreads();
    HelperThreads(const HelperThreads &)             = delete;
    HelperThreads & operator=(const HelperThreads &) = delete;

    // Calls body(0) to body(n - 1), each once, on this thread and others, and returns when all have returned. `seconds`
    // is what all of them are expected to take: if that is too little to ask others for, this thread does it alone.
    template <class Body>
    void for_each(size_t n, double seconds, Body && body) {
        run(n, seconds, [](void * data, size_t i) { (*static_cast<std::remove_reference_t<Body> *>(data))(i); }, &body);
    }

  private:
    using Call = void (*)(void * data, size_t i);

    void              run(size_t n, double seconds, Call call, void * data);
    ggml_threadpool * pool(int32_t n_threads);
    void              run_items();

    static void on_thread(ggml_tensor *, int, int, void * self);

    Context &         context_;
    const int32_t     n_own_;                  // 0: the context's
    ggml_threadpool * own_pool_    = nullptr;  // started when it is first needed
    bool              pool_failed_ = false;    // they could not be started
    ggml_context_ptr  memory_;                 // of the graph
    ggml_cgraph *     graph_ = nullptr;

    // Of the CPU's backend, which may be a module.
    decltype(&ggml_graph_plan)    plan_;
    decltype(&ggml_graph_compute) compute_;

    std::atomic<size_t> next_{0};
    size_t              n_    = 0;
    Call                call_ = nullptr;
    void *              data_ = nullptr;
};

}  // namespace pyg
