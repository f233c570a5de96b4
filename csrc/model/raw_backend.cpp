// Devices, and backends for raw ggml graphs.
#include "boundary/backend_loader.hpp"
#include "boundary/handles.hpp"
#include "boundary/machine_limits.hpp"

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

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
    void leak() {
        raw = nullptr;
        pyg::leak_object(std::move(hosts));
    }
};

namespace {

std::string device_names() {
    std::string names;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        names += (i ? ", " : "") + std::string(ggml_backend_dev_name(ggml_backend_dev_get(i)));
    }
    return names;
}

bool is_cpu(ggml_backend_dev_t device) { return ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU; }

// Only backends that compute on the CPU have a number of threads.
void set_threads(ggml_backend_dev_t device, ggml_backend_t backend, int32_t n_threads) {
    void * set = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads");
    if (set) {
        reinterpret_cast<ggml_backend_set_n_threads_t>(set)(backend, n_threads ? n_threads : pyg_cpu_count());
    }
}

// A backend crashes on memory it cannot access, which cannot be turned into an error.
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
        throw fail(PYG_ERR_INVALID_PARAMETER, "tensor \"%s\" (%s) is in %s memory, which the device %s cannot access",
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
    throw fail(code, "the graph was not computed (%s): %s", ggml_status_to_string(status),
               pyg::engine_error_text().c_str());
}

}  // namespace

namespace pyg {

ggml_backend_dev_t device_named(const char * name) {
    for (const ggml_backend_dev_t device : devices_of_hosts()) {
        if (name && std::strcmp(name, ggml_backend_dev_name(device)) == 0) {
            return device;
        }
    }
    if (name && std::strcmp(name, "CPU") != 0) {
        load_gpu_backends();
    }
    const ggml_backend_dev_t device = name ? ggml_backend_dev_by_name(name) : nullptr;
    if (!device) {
        throw fail(PYG_ERR_DEVICE, "there is no device \"%s\"; this build sees: %s", name ? name : "",
                   device_names().c_str());
    }
    return device;
}

pyg_device device_facts(ggml_backend_dev_t device) {
    ggml_backend_dev_props props;
    ggml_backend_dev_get_props(device, &props);
    pyg_device facts = {};
    std::snprintf(facts.name, sizeof(facts.name), "%s", props.name);
    std::snprintf(facts.backend, sizeof(facts.backend), "%s",
                  ggml_backend_reg_name(ggml_backend_dev_backend_reg(device)));
    std::snprintf(facts.device_id, sizeof(facts.device_id), "%s", props.device_id ? props.device_id : "");
    std::snprintf(facts.description, sizeof(facts.description), "%s", props.description);
    facts.type         = props.type;
    facts.memory_total = props.memory_total;
    facts.memory_free  = is_cpu(device) ? memory_available() : props.memory_free;
    return facts;
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
        *out = pyg::device_facts(ggml_backend_dev_get(static_cast<size_t>(index)));
    });
}

pyg_status pyg_backend_new(const char * device_name, int32_t n_threads, pyg_backend ** out, pyg_error * err) {
    *out = nullptr;
    return pyg::guard(err, [&] {
        if (n_threads < 0 || n_threads > GGML_MAX_N_THREADS) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "n_threads is %d; it must be 1 to %d, or 0 for one per core",
                       n_threads, GGML_MAX_N_THREADS);
        }
        const ggml_backend_dev_t device  = pyg::device_named(device_name);
        auto                     backend = std::make_unique<pyg_backend>();
        backend->hosts                   = pyg::hosts_of({device});
        backend->raw                     = ggml_backend_dev_init(device, nullptr);
        if (!backend->raw) {
            throw fail(PYG_ERR_DEVICE, "the device %s cannot be used: %s", device_name,
                       pyg::engine_error_text().c_str());
        }
        set_threads(device, backend->raw, n_threads);
        *out = backend.release();
    });
}

pyg_status pyg_backend_close(pyg_backend * backend, pyg_error * err) { return pyg::close(backend, err); }
void       pyg_backend_free(pyg_backend * backend) { pyg::free_handle(backend); }

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
