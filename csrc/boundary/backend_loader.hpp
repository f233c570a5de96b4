// The engine's list of backends, and the modules it is filled from in builds that load them (PYGGML_PORTABLE): the
// CPU's at start-up, the GPUs' on first need, because a driver takes longer to start than everything else.
#pragma once

#include "llama.h"

#include <mutex>
#include <shared_mutex>
#include <string>

namespace pyg {

// Loads the best variant of each backend that computes on the CPU; for pyg_init, whose arguments these are.
// PYG_ERR_DEVICE if there is no backend at all.
void load_cpu_backends(const char * module_dir, const char * search_path);

// Whether a kernel of ours gives each row of a node the same bits in every batch (kernels/backend/c_api.h); once those
// are loaded.
bool has_batch_invariant_kernel(const ggml_tensor * op);

// Whether kernels of ours leave out products of weights on this thread (kernels/backend/c_api.h); without kernels,
// nothing.
void set_kernels_dry_run(bool is_dry_run);

// Whether this is a thread of a graph that was asked for under a guard (kernels/backend/compute_threads.h).
bool compute_thread_may_throw();

// Why there are no kernels of ours, null if there are. Static.
const char * no_kernels();

// Loads the modules of GPUs, if that has not been done. To be called wherever a device other than the CPU may be meant.
// What fails is kept for pyg_gpu_module_get.
void load_gpu_backends() noexcept;

// The engine walks its lists of backends and devices without a lock where it loads a model or creates a context. So
// these two are the only ways to do that here: they wait while someone holds change_backends() to add to the lists.
// What a file makes the engine fail an assert at is PYG_ERR_MODEL_LOAD.
llama_model *   load_model(const std::string & path, const llama_model_params & params);
llama_context * create_context(llama_model * model, const llama_context_params & params);

std::unique_lock<std::shared_mutex> change_backends();

// Called around fork(): no GPU is half loaded in the child.
void lock_backends_for_fork();
void unlock_backends_after_fork();
void renew_backends_lock_in_child();

}  // namespace pyg
