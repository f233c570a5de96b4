// Start-up of the library, fork handlers, and build information.
#include "../ggml/src/ggml-threading.h"
#include "boundary/backend_loader.hpp"
#include "boundary/guard.hpp"
#include "boundary/log.hpp"
#include "boundary/signals/fault_signals.hpp"
#include "boundary/signals/mapped_files.hpp"
#include "ggml-backend.h"
#include "llama.h"
#include "log.h"
#include "platform/platform.hpp"

#include <atomic>
#include <mutex>

namespace {

std::atomic<uint64_t> g_fork_generation{0};

// Take all locks that a child needs, so that no other thread holds them during the fork. The engine's own lock comes
// before the log's, because it is held while messages are logged.
void before_fork() {
    pyg::lock_backends_for_fork();
    ggml_critical_section_start();
    pyg::lock_log_for_fork();
    pyg::lock_fault_handlers_for_fork();
    pyg::lock_mapped_files_for_fork();
}

void after_fork_in_parent() {
    pyg::unlock_mapped_files_after_fork();
    pyg::unlock_fault_handlers_after_fork();
    pyg::unlock_log_after_fork();
    ggml_critical_section_end();
    pyg::unlock_backends_after_fork();
}

void after_fork_in_child() {
    pyg::reset_fault_handlers_in_child();
    after_fork_in_parent();
    pyg::renew_backends_lock_in_child();
    g_fork_generation.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

namespace pyg {

void install_runtime() {
    static std::once_flag once;  // separate, so that a failed start-up can be retried
    std::call_once(once, [] {
        llama_log_set(on_engine_log, nullptr);
        common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT -
                                       1);  // llama-common has its own log, which prints to the terminal
        ggml_set_abort_callback(on_engine_abort);
        pyg::platform::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
    });
}

uint64_t fork_generation() noexcept { return g_fork_generation.load(std::memory_order_relaxed); }

}  // namespace pyg

pyg_status pyg_init(const char * module_dir, const char * search_path, pyg_error * err) {
    return pyg::guard(err, [&] {
        static std::once_flag once;
        std::call_once(once, [&] {
            pyg::install_runtime();
            llama_backend_init();
            pyg::load_cpu_backends(module_dir, search_path);
        });
    });
}

const char * pyg_version(void) { return PYGGML_VERSION; }

const char * pyg_engine_build(void) { return PYGGML_ENGINE_BUILD; }

const char * pyg_build_info(void) { return PYGGML_BUILD_INFO; }
