#include "engine/threads/helper_threads.hpp"

#include <algorithm>
#include <system_error>

#ifdef PYGGML_BACKEND_DL
#    include "boundary/loaded_cpu_backend.h"
#    define OF_THE_CPU(function) reinterpret_cast<decltype(&function)>(pyg_loaded_cpu_symbol(#function))
#else
#    define OF_THE_CPU(function) (&(function))
#endif

namespace {

// Least work worth distributing: to spinning threads, and to threads that have to be woken.
constexpr double MIN_WORK_SPINNING_S = 50e-6;
constexpr double MIN_WORK_SLEEPING_S = 300e-6;

}  // namespace

namespace pyg {

HelperThreads::HelperThreads(Context & context, int32_t n_own)
    : context_(context), n_own_(n_own), plan_(OF_THE_CPU(ggml_graph_plan)), compute_(OF_THE_CPU(ggml_graph_compute)) {
    constexpr size_t       N_NODES = 1;
    const ggml_init_params params  = {2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(N_NODES, false), nullptr,
                                      false};
    memory_.reset(ggml_init(params));
    graph_ = ggml_new_graph_custom(memory_.get(), N_NODES, false);
    ggml_build_forward_expand(graph_, ggml_custom_4d(memory_.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, on_thread,
                                                     GGML_N_TASKS_MAX, this));
}

HelperThreads::~HelperThreads() {
    if (own_pool_) {
        free_threads(own_pool_);
    }
}

void HelperThreads::for_each(size_t n, double seconds, const std::function<void(size_t)> & body) {
    n_                      = n;
    body_                   = &body;
    next_                   = 0;
    const int32_t n_threads = n_own_ ? n_own_ : llama_n_threads(context_.raw);
    const bool is_worth_it  = n > 1 && n_threads > 1 && seconds > (n_own_ ? MIN_WORK_SLEEPING_S : MIN_WORK_SPINNING_S);
    ggml_threadpool * const threads = is_worth_it ? pool(n_threads) : nullptr;
    if (!threads) {
        run_items();
        return;
    }
    ggml_cplan plan = plan_(graph_, static_cast<int>(std::min(static_cast<size_t>(n_threads), n)), threads);
    compute_(graph_, &plan);
}

// Null if no pool is available.
ggml_threadpool * HelperThreads::pool(int32_t n_threads) {
    if (n_own_ == 0) {
        return context_.threads(n_threads);
    }
    if (!own_pool_ && !pool_failed_) {
        try {
            own_pool_ = new_threads(n_threads, /*spins=*/false);
        } catch (const std::system_error &) {
            pool_failed_ = true;
        }
    }
    return own_pool_;
}

void HelperThreads::run_items() {
    for (size_t i = next_++; i < n_; i = next_++) {
        (*body_)(i);
    }
}

void HelperThreads::on_thread(ggml_tensor *, int, int, void * self) { static_cast<HelperThreads *>(self)->run_items(); }

}  // namespace pyg
