// Handle of a connected host, and the pyg_remote_* functions.
#include "boundary/handles.hpp"
#include "boundary/machine_limits.hpp"
#include "ggml-cpu.h"
#include "remote/hosts.hpp"
#include "remote/protocol.hpp"

#include <cstdio>
#include <deque>

using pyg::fail;

struct pyg_remote : pyg::PointerHandle<std::shared_ptr<pyg::Host>, PYG_HANDLE_REMOTE> {
    using PointerHandle::PointerHandle;
};

namespace {

// A device that computes for a remote client; on the CPU with a persistent thread pool.
class ExportedDevice {
  public:
    ExportedDevice(ggml_backend_dev_t device, int32_t n_threads) : backend_(ggml_backend_dev_init(device, nullptr)) {
        if (!backend_) {
            throw fail(PYG_ERR_DEVICE, "the device %s cannot be used: %s", ggml_backend_dev_name(device),
                       pyg::engine_error_text().c_str());
        }
        if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) {
            threads_.reset(pyg::new_threads(n_threads));
            pyg::cpu_function_as<decltype(&ggml_backend_cpu_set_n_threads)>("ggml_backend_set_n_threads")(
                backend_.get(), n_threads);
            pyg::cpu_function_as<decltype(&ggml_backend_cpu_set_threadpool)>("ggml_backend_cpu_set_threadpool")(
                backend_.get(), threads_.get());
        }
    }

    ggml_backend_t backend() const { return backend_.get(); }

  private:
    struct Free {
        void operator()(ggml_threadpool * threads) const { pyg::free_threads(threads); }
    };

    std::unique_ptr<ggml_threadpool, Free> threads_;
    ggml_backend_ptr                       backend_;
};

std::vector<ggml_backend_dev_t> registered(const int32_t * indices, int32_t n) {
    std::vector<ggml_backend_dev_t> devices;
    for (int32_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= pyg_device_count()) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "there is no device %d; this build sees %d", indices[i],
                       pyg_device_count());
        }
        devices.push_back(ggml_backend_dev_get(static_cast<size_t>(indices[i])));
    }
    if (devices.empty()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "no device to export was given");
    }
    return devices;
}

}  // namespace

pyg_status pyg_remote_connect(int32_t socket, const char * name, double heartbeat_timeout_s, pyg_remote ** out,
                              pyg_error * err) {
    *out = nullptr;
    return pyg::guard(err, [&] { *out = new pyg_remote(pyg::connect_host(socket, name, heartbeat_timeout_s)); });
}

pyg_status pyg_remote_close(pyg_remote * remote, pyg_error * err) { return pyg::close(remote, err); }
void       pyg_remote_free(pyg_remote * remote) { pyg::free_handle(remote); }

pyg_status pyg_remote_device_count(pyg_remote * remote, int32_t * out, pyg_error * err) {
    return pyg::with(remote, err, [&](const pyg::Host & host) { *out = static_cast<int32_t>(host.devices.size()); });
}

pyg_status pyg_remote_device_get(pyg_remote * remote, int32_t index, pyg_device * out, pyg_error * err) {
    return pyg::with(remote, err, [&](pyg_remote & handle) {
        const auto & devices = handle.object->devices;
        const char * peer    = handle.object->connection->peer().c_str();
        if (index < 0 || static_cast<size_t>(index) >= devices.size()) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "there is no device %d; the host %s exports %zu", index, peer,
                       devices.size());
        }
        *out = pyg::device_facts(devices[static_cast<size_t>(index)]);
        pyg::require_hosts({handle.object});
        std::snprintf(out->description, sizeof(out->description), "%s", peer);
    });
}

pyg_status pyg_remote_require(pyg_remote * remote, pyg_error * err) {
    return pyg::with(remote, err, [&](pyg_remote & handle) {
        handle.object->connection->check_peer();
        pyg::require_hosts({handle.object});
    });
}

pyg_status pyg_remote_serve(int32_t socket, const char * name, const int32_t * devices, int32_t n_devices,
                            int32_t n_threads, uint64_t max_bytes, pyg_error * err) {
    return pyg::guard(err, [&] {
        const auto                  connection = pyg::Connection::adopt(socket, name, pyg::Connection::SERVER, 0);
        std::deque<ExportedDevice>  exported;
        std::vector<ggml_backend_t> backends;
        for (const ggml_backend_dev_t device : registered(devices, n_devices)) {
            exported.emplace_back(device, n_threads ? n_threads : pyg_cpu_count());
            backends.push_back(exported.back().backend());
        }
        pyg::serve(connection, backends, max_bytes, pyg_memory_available);
    });
}
