#include "boundary/backend_loader.hpp"

#include "boundary/guard.hpp"
#include "boundary/log.hpp"
#include "boundary/signals/fault_signals.hpp"
#include "ggml-backend.h"
#include "kernels/backend/c_api.h"
#include "kernels/backend/compute_threads.h"
#include "kernels/lora/row_adapters.h"
#include "platform/platform.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

struct GpuModule {
    std::string name;
    std::string reason;  // why it was not loaded, or messages while it looked for devices
    bool        is_loaded = false;
    int32_t     n_devices = 0;
};

std::shared_mutex g_backends;  // guards the engine's lists
std::mutex        g_loading;   // guards everything below
bool              g_gpus_loaded                              = false;
const char *      g_no_kernels                               = nullptr;  // reason, if our kernels are not in use
bool (*g_has_batch_invariant_kernel)(const ggml_tensor * op) = nullptr;
void (*g_set_kernels_dry_run)(bool is_dry_run)               = nullptr;
void (*g_set_row_adapters)(const pyg_row_adapters *)         = nullptr;
bool (*g_compute_thread_may_throw)()                         = nullptr;
fs::path               g_module_dir;
std::vector<fs::path>  g_search_path;
std::vector<GpuModule> g_gpu_modules;

thread_local bool t_loads_model = false;

// FROM_BACKEND(function): its address in the CPU backend, which is the module `library` or linked; null if it lacks it.
#ifdef PYGGML_BACKEND_DL
constexpr bool HAS_MODULES = true;
#    define FROM_BACKEND(function) reinterpret_cast<decltype(&(function))>(library.symbol(#function))
#else
constexpr bool HAS_MODULES = false;
#    define FROM_BACKEND(function) (&(function))
#endif

constexpr const char * MODULE      = "ggml-";
constexpr const char * CPU_KINDS[] = {"ggml-blas", "ggml-zendnn", "ggml-cpu"};

bool begins_with(const std::string & text, const char * beginning) { return text.rfind(beginning, 0) == 0; }

bool is_of_kind(const fs::path & module, const char * kind) {
    return begins_with(module.filename().string(), (pyg::platform::LIBRARY_PREFIX + std::string(kind)).c_str());
}

// Marks this thread as loading a model while it lives.
class Loading : pyg::NonCopyable {
  public:
    Loading() { t_loads_model = true; }
    ~Loading() { t_loads_model = before_; }

  private:
    const bool before_ = t_loads_model;
};

// Sorted, so that devices have the same order on every file system.
std::vector<fs::path> modules() {
    std::vector<fs::path> found;
    std::error_code       error;
    for (const fs::directory_entry & entry : fs::directory_iterator(g_module_dir, error)) {
        if (is_of_kind(entry.path(), MODULE) && entry.path().extension() == pyg::platform::LIBRARY_SUFFIX) {
            found.push_back(entry.path());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<fs::path> gpu_modules() {
    std::vector<fs::path> found;
    for (const fs::path & path : modules()) {
        if (std::none_of(std::begin(CPU_KINDS), std::end(CPU_KINDS),
                         [&](const char * kind) { return is_of_kind(path, kind); })) {
            found.push_back(path);
        }
    }
    if (const char * const other = std::getenv("GGML_BACKEND_PATH")) {
        found.emplace_back(other);  // upstream's variable for another backend
    }
    return found;
}

class Library : pyg::NonCopyable {
  public:
    explicit Library(const fs::path & path) : handle_(pyg::platform::open_library(path.u8string().c_str(), refusal_)) {}
    ~Library() {
        if (handle_) {
            pyg::platform::close_library(handle_);
        }
    }

    const std::string & refusal() const { return refusal_; }  // error of the system's loader; "" if it is loaded
    void *              symbol(const char * name) const { return pyg::platform::symbol_of_library(handle_, name); }
    void                keep() { handle_ = nullptr; }

  private:
    std::string refusal_;
    void *      handle_;
};

// Score of a variant for this CPU; 0: unsupported.
int score(const fs::path & path) {
    const Library library(path);
    if (!library.refusal().empty()) {
        return 0;
    }
    const auto score = reinterpret_cast<int (*)()>(library.symbol("ggml_backend_score"));
    return score ? score() : 1;
}

// Our kernels are compiled into each variant of the CPU backend. PYGGML_KERNELS=off disables them, for comparison.
void register_kernels([[maybe_unused]] const Library & library) {
    const char * const setting = std::getenv("PYGGML_KERNELS");
    if (setting && std::strcmp(setting, "off") == 0) {
        g_no_kernels = "no kernels of pyggml (PYGGML_KERNELS)";
        return;
    }
    g_no_kernels      = "no kernels of pyggml for this CPU";
    const auto add    = FROM_BACKEND(pyg_kernels_register);
    const auto exist  = FROM_BACKEND(pyg_kernels_exist);
    const auto covers = FROM_BACKEND(pyg_kernels_cover);
    const auto tries  = FROM_BACKEND(pyg_kernels_try);
    const auto adapts = FROM_BACKEND(pyg_kernels_set_row_adapters);
    if (HAS_MODULES && (!add || !exist || !covers || !tries || !adapts)) {
        return;
    }
    add();
    g_has_batch_invariant_kernel = covers;
    g_set_kernels_dry_run        = tries;
    g_set_row_adapters           = adapts;
    if (exist()) {
        g_no_kernels = nullptr;
    }
}

// Failures on compute threads are rethrown on the thread that started the graph, if it has a guard.
void guard_compute_threads([[maybe_unused]] const Library & library) {
    const auto guard     = FROM_BACKEND(pyg_compute_threads_guard);
    const auto may_throw = FROM_BACKEND(pyg_compute_threads_may_throw);
    if (HAS_MODULES && (!guard || !may_throw)) {
        return;
    }
    guard([] { return pyg::guarded(); });
    g_compute_thread_may_throw = may_throw;
}

void use_cpu_backend(const fs::path & module) {
    const Library library(module);
    register_kernels(library);
    guard_compute_threads(library);
}

void load_best(const std::vector<fs::path> & all, const char * kind) {
    fs::path best;
    int      best_score = 0;
    for (const fs::path & path : all) {
        const int own = is_of_kind(path, kind) ? score(path) : 0;
        if (own > best_score) {
            best_score = own;
            best       = path;
        }
    }
    if (best_score > 0 && ggml_backend_load(best.u8string().c_str())) {
        use_cpu_backend(best);
    }
}

// Name of the missing library in the loader's error: "libcudart.so.13: cannot open shared object file" (glibc), "Error
// loading shared library libcudart.so.13: No such file" (musl).
std::string missing_library(const std::string & refusal) {
    const std::string before = refusal.substr(0, refusal.find(':'));
    const std::string name   = before.substr(before.find_last_of(" \t") + 1);
    return begins_with(name, "lib") ? name : "";
}

// Load a library from NVIDIA's Python packages: nvidia/cu13/lib, nvidia/cublas/lib ...
bool load_from_packages(const std::string & name) {
    for (const fs::path & folder : g_search_path) {
        std::error_code error;
        for (const fs::directory_entry & part : fs::directory_iterator(folder / "nvidia", error)) {
            Library library(part.path() / "lib" / name);
            if (library.refusal().empty()) {
                library.keep();
                return true;
            }
        }
    }
    return false;
}

// Error of loading a module, "" if it can be loaded. Libraries that the module's search path does not find are loaded
// from the Python packages.
std::string refusal(const fs::path & module) {
    std::string previous;
    while (true) {
        const std::string messages = Library(module).refusal();
        const std::string name     = missing_library(messages);
        if (name.empty() || name == previous || !load_from_packages(name)) {
            return messages;
        }
        previous = name;
    }
}

GpuModule load(const fs::path & path) {
    GpuModule module;
    module.name   = path.filename().string();
    module.reason = refusal(path);
    if (!module.reason.empty()) {
        return module;
    }
    pyg::LogBuffer held;  // without a GPU, its messages are dropped: the caller may not have asked for one
    pyg_error      err;
    const auto     status = pyg::guard(&err, [&] {
        const auto               lock    = pyg::change_backends();
        const ggml_backend_reg_t backend = ggml_backend_load(path.u8string().c_str());
        module.is_loaded                 = backend != nullptr;
        module.n_devices                 = backend ? static_cast<int32_t>(ggml_backend_reg_dev_count(backend)) : 0;
        module.reason                    = pyg::engine_error_text();
    });
    if (status != PYG_OK) {
        module.reason = err.message;
    }
    if (module.n_devices == 0) {
        held.drop();
    }
    return module;
}

// Upstream's llama_print_system_info reports all backends in one static buffer, which is not thread-safe.
std::string features_of(const char * backend) {
    std::string              lines;
    const std::shared_lock   lock(g_backends);
    ggml_backend_reg_t const registry = ggml_backend_reg_by_name(backend);
    const auto get = registry ? reinterpret_cast<ggml_backend_get_features_t>(
                                    ggml_backend_reg_get_proc_address(registry, "ggml_backend_get_features"))
                              : nullptr;
    for (const ggml_backend_feature * each = get ? get(registry) : nullptr; each && each->name; each++) {
        lines += std::string(each->name) + "=" + each->value + "\n";
    }
    return lines;
}

}  // namespace

namespace pyg {

void load_cpu_backends(const char * module_dir, const char * search_path) {
    const std::lock_guard lock(g_loading);
    g_gpus_loaded = !HAS_MODULES;
    g_module_dir  = module_dir;
    std::istringstream folders(search_path);
    for (std::string folder; std::getline(folders, folder, ':');) {
        g_search_path.emplace_back(folder);
    }
    if (HAS_MODULES) {
        const std::vector<fs::path> all = modules();
        for (const char * kind : CPU_KINDS) {
            load_best(all, kind);
        }
    } else {
        use_cpu_backend("");
    }
    if (ggml_backend_dev_count() == 0) {
        throw fail(PYG_ERR_DEVICE, "no compute backend could be loaded from %s", module_dir);
    }
}

void load_gpu_backends() noexcept {
    if (t_loads_model) {
        // called from a progress callback: adding to the engine's lists would wait for the load to end (deadlock)
        return;
    }
    const std::lock_guard lock(g_loading);
    if (g_gpus_loaded) {
        return;
    }
    g_gpus_loaded = true;
    pyg_error err;  // errors of the file system mean that there are no modules
    guard(&err, [] {
        for (const fs::path & path : gpu_modules()) {
            g_gpu_modules.push_back(load(path));
        }
    });
}

llama_model * load_model(const std::string & path, const llama_model_params & params) {
    const std::shared_lock lock(g_backends);
    static std::mutex      combining;  // upstream's list of combined devices has no lock
    std::unique_lock       alone(combining, std::defer_lock);
    if (params.split_mode == LLAMA_SPLIT_MODE_TENSOR) {
        alone.lock();
    }
    const Loading    loading;
    const FaultScope fault_scope;
    try {
        return llama_model_load_from_file(path.c_str(), params);
    } catch (const EngineAbort & abort) {
        Failure failure = failure_of(abort);
        if (failure.code == PYG_ERR_OUT_OF_MEMORY) {
            throw failure;
        }
        throw fail(PYG_ERR_MODEL_LOAD, "%s could not be loaded: %s", path.c_str(), failure.message.c_str());
    }
}

llama_context * create_context(llama_model * model, const llama_context_params & params) {
    const std::shared_lock lock(g_backends);
    const FaultScope       fault_scope;
    return llama_init_from_model(model, params);
}

bool has_batch_invariant_kernel(const ggml_tensor * op) {
    return g_has_batch_invariant_kernel && g_has_batch_invariant_kernel(op);
}

void set_kernels_dry_run(bool is_dry_run) {
    if (g_set_kernels_dry_run) {
        g_set_kernels_dry_run(is_dry_run);
    }
}

bool compute_thread_may_throw() { return g_compute_thread_may_throw && g_compute_thread_may_throw(); }

void set_row_adapters(const pyg_row_adapters * adapters) {
    if (g_set_row_adapters) {
        g_set_row_adapters(adapters);
    }
}

const char * no_kernels() { return g_no_kernels; }

std::unique_lock<std::shared_mutex> change_backends() { return std::unique_lock(g_backends); }

void lock_backends_for_fork() { g_loading.lock(); }
void unlock_backends_after_fork() { g_loading.unlock(); }

void renew_backends_lock_in_child() {
    new (&g_backends) std::shared_mutex;  // threads that held it exist only in the parent
}

}  // namespace pyg

int32_t pyg_gpu_module_count(void) {
    pyg::load_gpu_backends();
    return static_cast<int32_t>(g_gpu_modules.size());
}

pyg_status pyg_gpu_module_get(int32_t index, pyg_gpu_module * out, pyg_error * err) {
    return pyg::guard(err, [&] {
        if (index < 0 || index >= pyg_gpu_module_count()) {
            throw pyg::fail(PYG_ERR_INVALID_PARAMETER, "there is no GPU module %d; this build has %zu", index,
                            g_gpu_modules.size());
        }
        const GpuModule & module = g_gpu_modules[static_cast<size_t>(index)];  // immutable once loaded
        *out                     = {};
        std::snprintf(out->name, sizeof(out->name), "%s", module.name.c_str());
        std::snprintf(out->reason, sizeof(out->reason), "%s", module.reason.c_str());
        out->is_loaded = module.is_loaded;
        out->n_devices = module.n_devices;
    });
}

pyg_status pyg_backend_features(const char * backend, char ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = pyg::owned_copy(features_of(backend)); });
}
