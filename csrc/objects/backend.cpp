// Devices, and backends for raw ggml graphs.
#include "boundary/backends.hpp"
#include "boundary/handles.hpp"
#include "boundary/machine.hpp"

#include <cctype>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

using pyg::fail;

struct pyg_backend : pyg::Handle {
    ggml_backend_t raw = nullptr;
    pyg::Hosts     hosts;  // of its device

    pyg_backend() : Handle(PYG_HANDLE_BACKEND) {}
    void release() {
        ggml_backend_free(raw);
        raw = nullptr;
        hosts.clear();
    }
    void leak() { raw = nullptr; }
};

namespace {

std::string device_names() {
    std::string names;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        names += (i ? ", " : "") + std::string(ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
    return names;
}

// From the source, which has every backend; pip rebuilds what is installed only when it is told to.
#define BUILD_WITH(option)                                                                                             \
    "build pyggml with it, in the folder of its source: CMAKE_ARGS=\"-D" option "=ON\" pip install --force-reinstall " \
    "--no-deps .; that needs "

// A kind of GPU: how upstream's device names begin, what else people call it, and what to do if there are none.
struct GpuKind {
    const char * name;
    const char * other_names[2];
    const char * backend;  // as upstream registers it
    const char * to_build;
    const char * to_see;
};

const GpuKind GPU_KINDS[] = {
    {"CUDA",
     {},
     "CUDA",
     BUILD_WITH("GGML_CUDA") "NVIDIA's CUDA toolkit, and its driver to run",
     "this build has CUDA: see that nvidia-smi lists the GPU, that CUDA_VISIBLE_DEVICES does not hide it, and that the "
     "driver is as new as the toolkit of the build"},
    {"ROCM",
     {"HIP"},
     "ROCm",
     BUILD_WITH("GGML_HIP") "AMD's ROCm with its HIP SDK, and the amdgpu driver to run",
     "this build has ROCm: see that rocminfo lists the GPU, that HIP_VISIBLE_DEVICES does not hide it, and that "
     "you may open /dev/kfd"},
    {"VULKAN",
     {},
     "Vulkan",
     BUILD_WITH("GGML_VULKAN") "Vulkan's headers and glslc, and a Vulkan driver to run",
     "this build has Vulkan: see that vulkaninfo lists the GPU"},
    {"SYCL",
     {},
     "SYCL",
     BUILD_WITH("GGML_SYCL") "Intel's oneAPI compiler, and its GPU driver to run",
     "this build has SYCL: see that sycl-ls lists the GPU"},
    {"MTL",
     {"METAL", "MPS"},
     "MTL",
     BUILD_WITH("GGML_METAL") "a Mac with Xcode's command line tools",
     "this build has Metal, but this Mac has no GPU it can use"},
};

const char * const ANY_GPU = "a GPU needs a build with its backend (GGML_CUDA, GGML_HIP, GGML_VULKAN, GGML_SYCL or "
                             "GGML_METAL), and its driver; \"pyggml doctor\" shows which";

const char * const GPU = "GPU";  // of any kind

bool begins_with(const std::string & text, const char * beginning) { return text.rfind(beginning, 0) == 0; }

// A device that was asked for, "cuda:1" or "CUDA1": its kind in upper case, as upstream calls it, and its index.
struct Wanted {
    std::string kind;
    std::string index;  // "" for the first

    bool is(const std::string & other_kind, const std::string & other_index) const {
        return kind == other_kind && (index.empty() ? "0" : index) == (other_index.empty() ? "0" : other_index);
    }
};

Wanted wanted_device(const std::string & name) {
    const size_t n_kind = name.find_last_not_of("0123456789") + 1;
    Wanted       wanted = {"", name.substr(n_kind)};
    for (const char c : name.substr(0, n_kind)) {
        if (c != ':') {
            wanted.kind += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        }
    }
    for (const GpuKind & kind : GPU_KINDS) {
        for (const char * other : kind.other_names) {
            if (other && wanted.kind == other) {
                wanted.kind = kind.name;
            }
        }
    }
    return wanted;
}

const char * advice(const Wanted & wanted) {
    for (const GpuKind & kind : GPU_KINDS) {
        const bool is_built = ggml_backend_reg_by_name(kind.backend) != nullptr;
        if (begins_with(wanted.kind, kind.name) || (wanted.kind == GPU && is_built)) {
            return is_built ? kind.to_see : kind.to_build;
        }
    }
    return ANY_GPU;
}

bool is_of_type(ggml_backend_dev_t device, enum ggml_backend_dev_type type) {
    return ggml_backend_dev_type(device) == type;
}

bool is_cpu(ggml_backend_dev_t device) { return is_of_type(device, GGML_BACKEND_DEVICE_TYPE_CPU); }

// The indices of all GPUs; those that share the main memory come last.
std::vector<size_t> gpus() {
    std::vector<size_t> found;
    for (const enum ggml_backend_dev_type type : {GGML_BACKEND_DEVICE_TYPE_GPU, GGML_BACKEND_DEVICE_TYPE_IGPU}) {
        for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
            if (is_of_type(ggml_backend_dev_get(i), type)) {
                found.push_back(i);
            }
        }
    }
    return found;
}

size_t device_index(const std::string & name) {
    const Wanted wanted = wanted_device(name);
    if (wanted.kind != "CPU") {
        pyg::load_gpu_backends();
    }
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        const Wanted own = wanted_device(ggml_backend_dev_name(ggml_backend_dev_get(i)));
        if (wanted.is(own.kind, own.index)) {
            return i;
        }
    }
    const std::vector<size_t> every_gpu = gpus();
    for (size_t i = 0; i < every_gpu.size(); i++) {
        if (wanted.is(GPU, std::to_string(i))) {
            return every_gpu[i];
        }
    }
    throw fail(PYG_ERR_DEVICE, "there is no device \"%s\"; this build sees: %s; %s", name.c_str(),
               device_names().c_str(), advice(wanted));
}

// Only backends that compute on the CPU have threads to set.
void set_threads(ggml_backend_dev_t device, ggml_backend_t backend, int32_t n_threads) {
    void * set = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads");
    if (set) {
        reinterpret_cast<ggml_backend_set_n_threads_t>(set)(backend, n_threads ? n_threads : pyg_cpu_count());
    }
}

// Given memory it cannot reach, or none, a backend fails an assert on one of its own threads or crashes: neither can be
// turned into an error.
void require_reachable(ggml_backend_t backend, const ggml_tensor * tensor) {
    if (ggml_nbytes(tensor) == 0) {
        return;
    }
    if (!tensor->data) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "tensor \"%s\" (%s) of the graph has no memory: allocate the graph's tensors first, with "
                   "ggml_backend_alloc_ctx_tensors or ggml_gallocr_alloc_graph",
                   tensor->name, ggml_op_desc(tensor));
    }
    const ggml_tensor *              owner = tensor->view_src ? tensor->view_src : tensor;
    const ggml_backend_buffer_type_t type =
        owner->buffer ? ggml_backend_buffer_get_type(owner->buffer) : ggml_backend_cpu_buffer_type();
    if (!ggml_backend_supports_buft(backend, type)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "tensor \"%s\" (%s) is in %s memory, which the device %s cannot reach",
                   tensor->name, ggml_op_desc(tensor), ggml_backend_buft_name(type), ggml_backend_name(backend));
    }
}

void require_computable(ggml_backend_t backend, ggml_cgraph * graph) {
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        require_reachable(backend, node);
        for (const ggml_tensor * source : node->src) {
            if (source) {
                require_reachable(backend, source);
            }
        }
        if (!ggml_backend_supports_op(backend, node)) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the device %s cannot compute %s for tensor \"%s\" of type %s",
                       ggml_backend_name(backend), ggml_op_desc(node), node->name, ggml_type_name(node->type));
        }
    }
}

void require_success(ggml_status status) {
    if (status == GGML_STATUS_SUCCESS) {
        return;
    }
    const pyg_code code = status == GGML_STATUS_ALLOC_FAILED ? PYG_ERR_OUT_OF_MEMORY : PYG_ERR_ENGINE;
    throw fail(code, "the graph was not computed (%s): %s", ggml_status_to_string(status), pyg::engine_words().c_str());
}

}  // namespace

namespace pyg {

ggml_backend_dev_t find_device(const std::string & name) {
    for (const ggml_backend_dev_t device : devices_of_hosts()) {
        if (name == ggml_backend_dev_name(device)) {
            return device;
        }
    }
    return ggml_backend_dev_get(device_index(name));
}

void * cpu_function(const char * name) {
    const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    void * found = cpu ? ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), name) : nullptr;
    if (!found) {
        throw fail(PYG_ERR_DEVICE, "the CPU backend has no function %s", name);
    }
    return found;
}

}  // namespace pyg

int32_t pyg_device_count(void) {
    pyg::load_gpu_backends();
    return static_cast<int32_t>(ggml_backend_dev_count());
}

pyg_status pyg_device_get(int32_t index, pyg_device * out, pyg_error * err) {
    return pyg::guard(err, [&] {
        if (index < 0 || index >= pyg_device_count()) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "there is no device %d; this build sees %d", index,
                       pyg_device_count());
        }
        const ggml_backend_dev_t device = ggml_backend_dev_get(static_cast<size_t>(index));
        size_t                   free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);

        *out = {};
        std::snprintf(out->name, sizeof(out->name), "%s", ggml_backend_dev_name(device));
        std::snprintf(out->description, sizeof(out->description), "%s", ggml_backend_dev_description(device));
        out->type         = ggml_backend_dev_type(device);
        out->memory_total = total;
        out->memory_free  = is_cpu(device) ? pyg::memory_available() : free;
    });
}

pyg_status pyg_device_find(const char * name, int32_t * index, pyg_error * err) {
    return pyg::guard(err, [&] { *index = static_cast<int32_t>(device_index(name)); });
}

const char * pyg_device_advice(const char * name) {
    try {
        pyg::load_gpu_backends();
        return advice(wanted_device(name ? name : ""));
    } catch (...) {
        return ANY_GPU;  // out of memory for a copy of the name
    }
}

pyg_status pyg_backend_new(const char * device_name, int32_t n_threads, pyg_backend ** out, pyg_error * err) {
    *out = nullptr;
    return pyg::guard(err, [&] {
        if (n_threads < 0 || n_threads > GGML_MAX_N_THREADS) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "n_threads is %d; it must be 1 to %d, or 0 for one per core",
                       n_threads, GGML_MAX_N_THREADS);
        }
        const ggml_backend_dev_t device  = pyg::find_device(device_name ? device_name : "");
        auto                     backend = std::make_unique<pyg_backend>();
        backend->hosts                   = pyg::hosts_of({device});
        backend->raw                     = ggml_backend_dev_init(device, nullptr);
        if (!backend->raw) {
            throw fail(PYG_ERR_DEVICE, "the device %s cannot be used: %s", device_name, pyg::engine_words().c_str());
        }
        set_threads(device, backend->raw, n_threads);
        *out = backend.release();
    });
}

pyg_status pyg_backend_close(pyg_backend * backend, pyg_error * err) { return pyg::close(backend, err); }

void pyg_backend_free(pyg_backend * backend) { pyg::free_handle(backend); }

pyg_status pyg_backend_get(pyg_backend * backend, struct ggml_backend ** out, pyg_error * err) {
    *out = nullptr;
    return pyg::with(backend, err, [&](pyg_backend & self) { *out = self.raw; });
}

pyg_status pyg_backend_compute(pyg_backend * backend, struct ggml_cgraph * graph, pyg_error * err) {
    return pyg::with(backend, err, [&](pyg_backend & self) {
        if (!graph) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the graph is NULL");
        }
        require_computable(self.raw, graph);
        const ggml_status status = ggml_backend_graph_compute(self.raw, graph);
        pyg::require_hosts(self.hosts);
        require_success(status);
    });
}
