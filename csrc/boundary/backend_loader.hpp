// List of the engine's backends, and the modules it is loaded from in portable builds (PYGGML_PORTABLE): CPU backends
// at start-up, GPU backends on first use, because drivers are slow to start.
#pragma once

#include "llama.h"

#include <mutex>
#include <shared_mutex>
#include <string>

struct pyg_row_adapters;

namespace pyg {

// Load the best variant of each backend that computes on the CPU, for pyg_init. PYG_ERR_DEVICE if there is none.
void load_cpu_backends(const char * module_dir, const char * search_path);

// Return true if our kernel computes each row of a node with the same bits in every batch
// (kernels/backend/c_api.h); once kernels are loaded.
bool has_batch_invariant_kernel(const ggml_tensor * op);

// Make our kernels skip products of weights on this thread (kernels/backend/c_api.h). Does nothing without kernels.
void set_kernels_dry_run(bool is_dry_run);

// The adapters of the rows of graphs that this thread computes, or null (kernels/lora/row_adapters.h). Does nothing
// without kernels.
void set_row_adapters(const pyg_row_adapters * adapters);

// True on a compute thread whose graph was started under a guard (kernels/backend/compute_threads.h).
bool compute_thread_may_throw();

// Reason why our kernels are not in use, null if they are. Static.
const char * no_kernels();

// Load the GPU modules, once. Call it before any use of a device other than the CPU. Failures are recorded for
// pyg_gpu_module_get.
void load_gpu_backends() noexcept;

// The engine reads its lists of backends and devices without a lock when it loads a model or creates a context, so both
// must go through these functions: they exclude change_backends(), which adds to the lists. PYG_ERR_MODEL_LOAD when a
// file makes the engine fail an assert.
llama_model *   load_model(const std::string & path, const llama_model_params & params);
llama_context * create_context(llama_model * model, const llama_context_params & params);

std::unique_lock<std::shared_mutex> change_backends();

// Called around fork(), so that no GPU module is half loaded in the child.
void lock_backends_for_fork();
void unlock_backends_after_fork();
void renew_backends_lock_in_child();

}  // namespace pyg
