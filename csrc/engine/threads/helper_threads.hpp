// Thread pool for work between two forward passes, such as sampling for many requests.
#pragma once

#include "boundary/handles.hpp"
#include "ggml-cpu.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace pyg {

// Runs on ggml's compute threads, as a graph with a single custom node. The context's own threads still spin after its
// last graph, so waking them takes microseconds. Where devices compute everything, those would have to be woken and
// would spin for nothing, so a small pool of its own is used, whose threads sleep at once.
class HelperThreads : NonCopyable {
  public:
    // `n_own`: threads of an own pool, the calling thread included; 0: use the context's.
    HelperThreads(Context & context, int32_t n_own);
    ~HelperThreads();

    // Call body(0) to body(n - 1), each once, on this thread and others, and wait for all. `seconds` is the expected
    // total: below a minimum, this thread does everything.
    void for_each(size_t n, double seconds, const std::function<void(size_t)> & body);

  private:
    ggml_threadpool * pool(int32_t n_threads);
    void              run_items();

    static void on_thread(ggml_tensor *, int, int, void * self);

    Context &         context_;
    const int32_t     n_own_;                  // 0: the context's
    ggml_threadpool * own_pool_    = nullptr;  // started on first use
    bool              pool_failed_ = false;    // its threads could not be started
    ggml_context_ptr  memory_;                 // of the graph
    ggml_cgraph *     graph_ = nullptr;

    // Functions of the CPU backend, which may be a loadable module.
    decltype(&ggml_graph_plan)    plan_;
    decltype(&ggml_graph_compute) compute_;

    std::atomic<size_t>                 next_{0};
    size_t                              n_    = 0;
    const std::function<void(size_t)> * body_ = nullptr;
};

}  // namespace pyg
