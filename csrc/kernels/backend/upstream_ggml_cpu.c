// Upstream's ggml-cpu.c with three changes: compute threads run through our functions, which catch exceptions
// (compute_threads.h), fused norms are offered to our kernel (rms_norm.h), and a graph's threads find the adapters of its
// rows (row_adapters.h).
//
// Macros replace upstream's names while its file is included; our functions follow it because they need its types. If
// upstream renames one or uses it in another way, this file does not compile.
#include "kernels/backend/compute_threads.h"
#include "ggml-cpu.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "kernels/lora/row_adapters.h"
#include "kernels/norms/rms_norm.h"
#include "ops.h"

#include <pthread.h>
#include <sched.h>

struct ggml_compute_state;

static void * pool_memory(size_t n_bytes);
static int    start_thread(pthread_t * thread, struct ggml_compute_state * state);
static int    join_thread(pthread_t thread);
static void   relax_or_leave(void);
static void   norm_times_weights(const struct ggml_compute_params * params, struct ggml_tensor * norm,
                                 struct ggml_tensor * product);

#define ggml_aligned_malloc(n_bytes) pool_memory(n_bytes)  // two calls, both for a pool
#define pthread_create(thread, attributes, run, state) start_thread(thread, state)
#define pthread_join(thread, result) join_thread(thread)
#define ggml_threadpool_new upstream_threadpool_new
#define ggml_graph_compute upstream_graph_compute
#define ggml_compute_forward_rms_norm_mul_fused(params, norm, product) norm_times_weights(params, norm, product)

// Its definition has `void` between the parentheses, its calls have nothing.
#define ggml_thread_cpu_relax(parameters) RELAX_##parameters
#define RELAX_void upstream_relax(void)
#define RELAX_ relax_or_leave()

#include "ggml-cpu.c"

#undef ggml_aligned_malloc
#undef pthread_create
#undef pthread_join
#undef ggml_threadpool_new
#undef ggml_graph_compute
#undef ggml_compute_forward_rms_norm_mul_fused

// Our fields of a pool, allocated behind upstream's.
struct failure {
    const void * row_adapters;  // of the graph that is computed
    atomic_bool failed;        // a thread has left the graph, so the others must
    atomic_int  n_left;        // of the threads other than the caller's
    atomic_int  n_recoveries;  // graphs that all have left
    atomic_bool is_reported;       // whether `reason` is set
    pyg_reason  reason;        // the first
    bool        is_guarded;    // whether exceptions may come out of the graph
    int         n_missing;     // threads that could not be started
    int         error;         // why not
};

static _Thread_local struct ggml_compute_state * t_state = NULL;  // of a compute thread, and of the caller in a graph

static struct failure * failure_of(struct ggml_threadpool * pool) {
    return (struct failure *) ((char *) pool + GGML_PAD(sizeof(*pool), GGML_CACHE_LINE));
}

static void * pool_memory(size_t n_bytes) {
    const size_t n_theirs = GGML_PAD(n_bytes, GGML_CACHE_LINE);
    char * const memory   = ggml_aligned_malloc(n_theirs + sizeof(struct failure));
    if (!memory) {
        pyg_throw_no_memory();
    }
    memset(memory + n_theirs, 0, sizeof(struct failure));
    return memory;
}

const void * pyg_row_adapters_of(const struct ggml_threadpool * pool) {
    return failure_of((struct ggml_threadpool *) pool)->row_adapters;
}

static int n_threads_of(int n_graph) { return n_graph & GGML_THREADPOOL_N_THREADS_MASK; }

// True if this thread computes the graph that failed; one that waits for the next graph does not.
static bool must_leave(struct ggml_compute_state * state) {
    struct ggml_threadpool * const pool = state->threadpool;
    if (!atomic_load_explicit(&failure_of(pool)->failed, memory_order_relaxed)) {
        return false;
    }
    const int n_graph = atomic_load_explicit(&pool->n_graph, memory_order_relaxed);
    return state->ith == 0 || (state->last_graph == n_graph && state->ith < n_threads_of(n_graph));
}

static void relax_or_leave(void) {
    upstream_relax();
    if (t_state && must_leave(t_state)) {
        pyg_leave_graph();
    }
}

bool pyg_compute_threads_may_throw(void) { return t_state && failure_of(t_state->threadpool)->is_guarded; }

// Keep the first reason. From now on, threads that wait at a barrier leave the graph.
static void report_failure(struct failure * failure, pyg_reason * reason) {
    if (atomic_exchange(&failure->is_reported, true)) {
        pyg_release_reason(reason);
    } else {
        failure->reason = *reason;
    }
    atomic_store(&failure->failed, true);
}

// Restart upstream's loop when all threads have left a graph.
static void * run_thread(void * data) {
    struct ggml_compute_state * const state   = data;
    struct failure * const            failure = failure_of(state->threadpool);
    pyg_reason                        reason  = {NULL};
    t_state                                   = state;
    while (pyg_run_catching(ggml_graph_compute_secondary_thread, state, &reason)) {
        const int n_before = atomic_load(&failure->n_recoveries);
        report_failure(failure, &reason);
        atomic_fetch_add(&failure->n_left, 1);
        while (atomic_load(&failure->n_recoveries) == n_before) {
            sched_yield();
        }
    }
    return NULL;
}

// On the caller's thread: wait until all threads have left the graph.
static void recover(struct ggml_threadpool * pool) {
    struct failure * const failure   = failure_of(pool);
    const int              n_workers = n_threads_of(atomic_load(&pool->n_graph)) - 1;
    while (atomic_load(&failure->n_left) < n_workers) {
        sched_yield();
    }
    atomic_store(&pool->n_barrier, 0);
    atomic_store(&failure->n_left, 0);
    atomic_store(&failure->is_reported, false);
    atomic_store(&failure->failed, false);
    atomic_fetch_add(&failure->n_recoveries, 1);
}

// Count a thread that cannot be started; the pool is freed once it is complete.
static int start_thread(pthread_t * thread, struct ggml_compute_state * state) {
    const int error = pthread_create(thread, NULL, run_thread, state);
    if (error) {
        struct failure * const failure = failure_of(state->threadpool);
        failure->n_missing++;
        failure->error = error;
        *thread        = (pthread_t) 0;
    }
    return 0;
}

static int join_thread(pthread_t thread) { return thread ? pthread_join(thread, NULL) : 0; }

struct ggml_threadpool * ggml_threadpool_new(struct ggml_threadpool_params * params) {
    struct ggml_threadpool * const pool    = upstream_threadpool_new(params);
    const struct failure           failure = *failure_of(pool);
    if (failure.n_missing) {
        ggml_threadpool_free(pool);
        pyg_throw_no_threads(failure.error, params->n_threads - failure.n_missing, params->n_threads);
    }
    return pool;
}

static void norm_times_weights(const struct ggml_compute_params * params, struct ggml_tensor * norm,
                               struct ggml_tensor * product) {
    if (!pyg_norm_times_weights(params, norm, product)) {
        ggml_compute_forward_rms_norm_mul_fused(params, norm, product);
    }
}

struct computation {
    struct ggml_cgraph * graph;
    struct ggml_cplan *  plan;
    enum ggml_status     status;
};

static void * compute(void * data) {
    struct computation * const computation = data;
    failure_of(computation->plan->threadpool)->row_adapters = pyg_begin_row_adapters(computation->graph);
    computation->status                    = upstream_graph_compute(computation->graph, computation->plan);
    return NULL;
}

// Compute a graph in the caller's pool, or in a temporary one.
enum ggml_status ggml_graph_compute(struct ggml_cgraph * graph, struct ggml_cplan * plan) {
    GGML_ASSERT(plan);
    struct ggml_cplan        complete = *plan;
    struct ggml_threadpool * own      = NULL;
    if (!complete.threadpool) {
        struct ggml_threadpool_params params = ggml_threadpool_params_default(plan->n_threads);
        own = complete.threadpool = ggml_threadpool_new(&params);
    }
    struct ggml_threadpool * const    pool        = complete.threadpool;
    struct failure * const            failure     = failure_of(pool);
    struct ggml_compute_state * const outer       = t_state;
    const int                         n_before    = atomic_load(&pool->n_graph);
    struct computation                computation = {graph, &complete, GGML_STATUS_SUCCESS};
    pyg_reason                        reason      = {NULL};
    failure->is_guarded                           = pyg_is_guarded();
    t_state                                       = &pool->workers[0];
    const bool threw                              = pyg_run_catching(compute, &computation, &reason);
    t_state                                       = outer;
    failure->row_adapters                         = NULL;
    if (threw && atomic_load(&pool->n_graph) != n_before) {
        report_failure(failure, &reason);
        recover(pool);
        reason = failure->reason;
    }
    if (own) {
        ggml_threadpool_free(own);
    }
    if (threw) {
        pyg_throw(&reason);
    }
    return computation.status;
}
