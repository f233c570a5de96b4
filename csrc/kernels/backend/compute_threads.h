/* Failures on compute threads, thrown where the graph was asked for.
 *
 * Upstream's compute threads run C: a failed assert or an uncaught exception there ends the process. So
 * upstream_ggml_cpu.c compiles upstream's file such that each of its threads starts in our stack frame. A thread that
 * fails leaves the graph by an exception; the other threads, which wait for it at a barrier, leave the graph from there
 * by another exception; and when all have left, the first error is thrown on the thread that asked for the graph. The
 * threads and their pool are then as before. The only cost is two loads in the loop of threads that wait anyway. */
#pragma once

#include "kernels/backend/c_api.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets who is asked, on the thread that wants a graph, whether an exception may come out of it; without, none may. To
 * be called once, before the first graph. */
PYG_EXPORTED void pyg_compute_threads_guard(bool (*is_guarded)(void));

/* Whether this is a thread of a graph that was asked for under a guard, so that a failed assert may throw. */
PYG_EXPORTED bool pyg_compute_threads_may_throw(void);

/* For upstream_ggml_cpu.c. */

/* An exception, in a form that C can hold. */
typedef struct {
    void * pointer;
} pyg_reason;

/* Whether run(data) threw; then `reason` has it. */
bool pyg_run_catching(void * (*run)(void *), void * data, pyg_reason * reason);
void pyg_throw(pyg_reason * reason); /* and empties it */
void pyg_release_reason(pyg_reason * reason);

/* Throws what is no reason of its own. */
void pyg_leave_graph(void);

void pyg_throw_no_memory(void);
void pyg_throw_no_threads(int error, int n_started, int n_wanted);

bool pyg_is_guarded(void);

#ifdef __cplusplus
}
#endif
