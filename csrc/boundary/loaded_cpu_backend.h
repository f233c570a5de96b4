// Calls into a CPU backend that is loaded at run time instead of linked (PYGGML_BACKEND_DL).
//
// A portable build has one library per kind of CPU and loads the best one, so nothing can link to the functions of
// ggml-cpu.h. FROM_LOADED_CPU(f, arguments...) calls f in the loaded library. If none is loaded, it aborts through
// ggml, like an engine assert. Any thread may call.

#ifndef PYGGML_LOADED_CPU_H
#define PYGGML_LOADED_CPU_H

#include "ggml-backend.h"
#include "platform/loaded_library.h"

#include <stddef.h>

// Returns the address of `name` in the loaded CPU backend.
static inline void * pyg_loaded_cpu_symbol(const char * name) {
    // Upstream does not expose the handle, but it does expose an address inside the library, which leads to it.
    ggml_backend_reg_t reg    = ggml_backend_reg_by_name("CPU");
    void *             inside = reg ? ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads") : NULL;
    const char *       library = NULL;
    void *             symbol  = inside ? pyg_symbol_of_library_at(inside, name, &library) : NULL;
    if (!library) {
        GGML_ABORT("%s is part of the CPU backend, and no CPU backend is loaded", name);
    }
    if (!symbol) {
        GGML_ABORT("the loaded CPU backend %s has no %s", library, name);
    }
    return symbol;
}

#define FROM_LOADED_CPU(function, ...) ((__typeof__(&function)) pyg_loaded_cpu_symbol(#function))(__VA_ARGS__)

#endif
