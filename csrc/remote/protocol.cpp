// Includes upstream's ggml-rpc.cpp, whose messages and server loop are private to that file.
#include "remote/protocol.hpp"

#include "ggml-backend-impl.h"
#include "ggml-cpp.h"
#include "ggml-impl.h"
#include "remote/connection.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>

namespace {

// Memory quota of the server's client, per device. One server runs in a process.
class MemoryQuota {
  public:
    void set(uint64_t max_bytes, uint64_t (*main_memory_available)()) {
        max_bytes_             = max_bytes;
        main_memory_available_ = main_memory_available;
    }

    ggml_backend_buffer_t alloc(ggml_backend_buffer_type_t type, size_t size) {
        const ggml_backend_dev_t memory_device = memory_device_of(ggml_backend_buft_get_device(type));
        if (size > bytes_left_in(memory_device)) {
            return nullptr;
        }
        const ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, size);
        if (buffer) {
            allocated_[memory_device] += ggml_backend_buffer_get_size(buffer);
        }
        return buffer;
    }

    void free(ggml_backend_buffer_t buffer) {
        const ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(buffer);
        allocated_[memory_device_of(ggml_backend_buft_get_device(type))] -= ggml_backend_buffer_get_size(buffer);
        ggml_backend_buffer_free(buffer);
    }

    // Tensor data, with an allowance for descriptions of tensors and graphs.
    bool may_receive(uint64_t n_request) const {
        constexpr uint64_t BESIDE_DATA = 64 << 20;
        return n_request <= BESIDE_DATA || n_request - BESIDE_DATA <= std::min(max_bytes_, main_memory_available_());
    }

    void memory(ggml_backend_dev_t device, size_t * free, size_t * total) {
        ggml_backend_dev_memory(device, free, total);
        const uint64_t left = bytes_left_in(memory_device_of(device));
        *total              = std::min<uint64_t>(*total, max_bytes_);
        *free               = memory_device_of(device) ? std::min<uint64_t>(*free, left) : left;
    }

  private:
    // A device with its own memory; null for main memory, where upstream's buffers name no device.
    static ggml_backend_dev_t memory_device_of(ggml_backend_dev_t device) {
        return device && ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU ? device : nullptr;
    }

    uint64_t bytes_left_in(ggml_backend_dev_t memory_device) {
        const uint64_t left = max_bytes_ - std::min(max_bytes_, allocated_[memory_device]);
        return memory_device ? left : std::min(left, main_memory_available_());
    }

    uint64_t max_bytes_                  = UINT64_MAX;
    uint64_t (*main_memory_available_)() = nullptr;
    std::unordered_map<ggml_backend_dev_t, uint64_t> allocated_;
};

MemoryQuota g_memory_quota;

}  // namespace

// Upstream's server allocates without limits. Redirect the three functions with which it does.
#define ggml_backend_buft_alloc_buffer g_memory_quota.alloc
#define ggml_backend_buffer_free g_memory_quota.free
#define ggml_backend_dev_memory g_memory_quota.memory

#include <ggml-rpc.cpp>

#undef ggml_backend_buft_alloc_buffer
#undef ggml_backend_buffer_free
#undef ggml_backend_dev_memory

namespace {

template <class Request>
bool read(const void * request, size_t n_request, Request & out) {
    if (n_request != sizeof(out)) {
        return false;
    }
    std::memcpy(&out, request, sizeof(out));
    return true;
}

// Call use(response) with the response that stands in for one of a lost host. Commands without one have no response, or
// one of variable size.
template <class Use>
void with_stand_in(uint8_t command, Use && use) {
    constexpr uint64_t ALIGNMENT = 4096;  // upstream divides by it
    switch (command) {
    case RPC_CMD_HELLO:
        return use(rpc_msg_hello_rsp{RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, RPC_PROTO_PATCH_VERSION, 0, {}});
    case RPC_CMD_DEVICE_COUNT:
        return use(rpc_msg_device_count_rsp{});
    case RPC_CMD_GET_DEVICE_MEMORY:
        return use(rpc_msg_get_device_memory_rsp{});
    case RPC_CMD_COMM_INIT:
        return use(rpc_msg_comm_init_rsp{});
    case RPC_CMD_ALLOC_BUFFER:  // failed
        return use(rpc_msg_alloc_buffer_rsp{});
    case RPC_CMD_GET_ALLOC_SIZE:
        return use(rpc_msg_get_alloc_size_rsp{});
    case RPC_CMD_GET_ALIGNMENT:
        return use(rpc_msg_get_alignment_rsp{ALIGNMENT});
    case RPC_CMD_GET_MAX_SIZE:
        return use(rpc_msg_get_max_size_rsp{SIZE_MAX});
    case RPC_CMD_BUFFER_GET_BASE:  // never read; null would fail an assert
        return use(rpc_msg_buffer_get_base_rsp{ALIGNMENT});
    case RPC_CMD_SET_TENSOR_HASH:  // "already cached": upstream sends nothing more
        return use(rpc_msg_set_tensor_hash_rsp{1});
    case RPC_CMD_COPY_TENSOR:
        return use(rpc_msg_copy_tensor_rsp{1});
    default:
        return;
    }
}

static_assert(RPC_PROTO_MAJOR_VERSION == 8 && RPC_CMD_COUNT == 24,
              "upstream's protocol has changed: see which commands have answers, and what stands in for them");

}  // namespace

namespace pyg {

size_t response_size(uint8_t command, const void * request, size_t n_request) {
    size_t                    size      = 0;
    rpc_msg_get_tensor_req    wanted    = {};
    rpc_msg_get_tensor_2d_req wanted_2d = {};
    if (command == RPC_CMD_GET_TENSOR && read(request, n_request, wanted)) {
        size = wanted.size;
    } else if (command == RPC_CMD_GET_TENSOR_2D && read(request, n_request, wanted_2d)) {
        size = wanted_2d.size * wanted_2d.n_copies;
    } else {
        with_stand_in(command, [&](const auto & response) { size = sizeof(response); });
    }
    return size;
}

void make_fallback_response(uint8_t command, void * response, size_t n_response) {
    std::memset(response, 0, n_response);
    with_stand_in(command, [&](const auto & stand_in) {
        std::memcpy(response, &stand_in, std::min(n_response, sizeof(stand_in)));
    });
}

bool is_blocked(uint8_t command) { return command == RPC_CMD_COMM_INIT; }

bool may_receive(uint64_t n_request) { return g_memory_quota.may_receive(n_request); }

std::shared_ptr<void> connect_upstream(const char * endpoint) { return get_dispatcher(endpoint); }

std::vector<ggml_backend_dev_t> devices_at(const char * endpoint) {
    std::vector<ggml_backend_dev_t> devices;
    const ggml_backend_reg_t        reg = ggml_backend_rpc_add_server(endpoint);
    for (size_t i = 0; reg && i < ggml_backend_reg_dev_count(reg); i++) {
        devices.push_back(ggml_backend_reg_dev_get(reg, i));
        ggml_backend_dev_buffer_type(devices.back());  // caches the device's properties while the host is connected
    }
    return devices;
}

void serve(const std::shared_ptr<Connection> & connection, const std::vector<ggml_backend_t> & backends,
           uint64_t max_bytes, uint64_t (*main_memory_available)()) {
    g_memory_quota.set(max_bytes, main_memory_available);
    std::string host;
    int         number = 0;
    parse_endpoint(connection->endpoint(), host, number);
    rpc_serve_client(backends, nullptr, socket_t::connect(host.c_str(), number));
}

}  // namespace pyg
