// A device that costs nothing, for benchmarks/host_overhead.py: a graph has been computed as soon as it is submitted,
// and copies to and from its memory take no time. All the time of a decode step is then spent on the host.
//
// Its memory is never touched. The logits that the host reads are a fixed pattern of normally distributed numbers in
// pinned memory, as if the device had written them; sampled token ids, and those of the likeliest tokens, are those of
// ordinary words.
//
//     ggml_backend_reg_t null_backend_reg(ggml_backend_buffer_t (*buffer_from_ptr)(void * memory, size_t n_bytes))
//
// `buffer_from_ptr` is ggml_backend_cpu_buffer_from_ptr of the engine that will use the device.
// Compile with upstream's ggml/include and ggml/src: c++ -std=c++17 -O2 -shared -fPIC
#include "ggml-backend-impl.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr size_t ALIGNMENT   = 128;
constexpr size_t MEMORY      = size_t{64} << 30;
constexpr float  SPREAD      = 2.5F;     // standard deviation of the logits
constexpr size_t N_PATTERN   = 1000003;  // a prime, so that the rows of logits differ
constexpr int    FIRST_ID    = 1000;     // token ids below are bytes and control tokens in some vocabularies
constexpr int    N_IDS       = 1000;
constexpr auto * NAME        = "Null";
constexpr auto * DEVICE_NAME = "Null0";
constexpr auto * HOST_NAME   = "Null_Host";
constexpr auto * DESCRIPTION = "a device that costs nothing";

using BufferFromPtr = ggml_backend_buffer_t (*)(void *, size_t);

BufferFromPtr g_buffer_from_ptr = nullptr;

// --- memory ---

// Memory that takes no space until it is written to.
ggml_backend_buffer_t new_buffer(ggml_backend_buffer_type_t type, size_t n_bytes) {
    const size_t size = n_bytes ? n_bytes : ALIGNMENT;
    void * memory     = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    ggml_backend_buffer_t buffer = g_buffer_from_ptr(memory, size);
    buffer->buft                 = type;
    buffer->iface.free_buffer    = [](ggml_backend_buffer_t self) { munmap(self->context, self->size); };
    return buffer;
}

float next_token_id() {
    static int n = 0;
    return static_cast<float>(FIRST_ID + n++ % N_IDS);
}

// What pyg::summarize_rows finds in a row: ids of the `k` largest logits, these logits, the id of the first of them,
// the sum of exp(logit - largest), and the index of the row.
void write_summary(float * to, size_t k) {
    constexpr float STEP = 0.05F;  // between two logits
    float           sum  = 0;
    for (size_t i = 0; i < k; i++) {
        to[i]     = next_token_id();
        to[k + i] = 10 - STEP * static_cast<float>(i);
        sum += std::exp(-STEP * static_cast<float>(i));
    }
    to[2 * k]     = to[0];
    to[2 * k + 1] = sum;
    to[2 * k + 2] = 0;
}

// The only small tensors that the host reads are sampled token ids and summaries of rows.
void get_tensor(ggml_backend_buffer_t, const ggml_tensor *, void * data, size_t, size_t n_bytes) {
    constexpr size_t MAX_SUMMARY = 4096, N_MORE = 3;
    const size_t     n = n_bytes / sizeof(float);
    if (n == 1) {
        const float token_id = next_token_id();
        std::memcpy(data, &token_id, sizeof(token_id));
    } else if (n > N_MORE && n <= MAX_SUMMARY && n % 2 == 1) {
        write_summary(static_cast<float *>(data), (n - N_MORE) / 2);
    }
}

ggml_backend_buffer_t new_device_buffer(ggml_backend_buffer_type_t type, size_t n_bytes) {
    ggml_backend_buffer_t buffer = new_buffer(type, n_bytes);
    if (buffer) {
        buffer->iface.memset_tensor = [](ggml_backend_buffer_t, ggml_tensor *, uint8_t, size_t, size_t) {};
        buffer->iface.set_tensor    = [](ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t) {};
        buffer->iface.get_tensor    = get_tensor;
        buffer->iface.cpy_tensor    = [](ggml_backend_buffer_t, const ggml_tensor *, ggml_tensor *) { return true; };
        buffer->iface.clear         = [](ggml_backend_buffer_t, uint8_t) {};
    }
    return buffer;
}

std::vector<float> random_numbers() {
    std::mt19937                    random(1);
    std::normal_distribution<float> normal(0, SPREAD);
    std::vector<float>              numbers(N_PATTERN);
    for (float & number : numbers) {
        number = normal(random);
    }
    return numbers;
}

// The engine clears the buffer of its output once.
void fill_with_logits(ggml_backend_buffer_t buffer, uint8_t) {
    static const std::vector<float> numbers = random_numbers();
    auto *                          next    = static_cast<char *>(buffer->context);
    for (size_t n_left = buffer->size; n_left > 0;) {
        const size_t n = std::min(n_left, numbers.size() * sizeof(float));
        std::memcpy(next, numbers.data(), n);
        next += n;
        n_left -= n;
    }
}

ggml_backend_buffer_t new_host_buffer(ggml_backend_buffer_type_t type, size_t n_bytes) {
    ggml_backend_buffer_t buffer = new_buffer(type, n_bytes);
    if (buffer) {
        buffer->iface.clear = fill_with_logits;
    }
    return buffer;
}

ggml_backend_buffer_type new_buffer_type(ggml_backend_dev_t device, bool is_host) {
    ggml_backend_buffer_type type = {};
    type.device                   = device;
    type.iface.get_alignment      = [](ggml_backend_buffer_type_t) { return ALIGNMENT; };
    if (is_host) {
        type.iface.get_name     = [](ggml_backend_buffer_type_t) { return HOST_NAME; };
        type.iface.alloc_buffer = new_host_buffer;
        type.iface.is_host      = [](ggml_backend_buffer_type_t) { return true; };
    } else {
        type.iface.get_name     = [](ggml_backend_buffer_type_t) { return DEVICE_NAME; };
        type.iface.alloc_buffer = new_device_buffer;
    }
    return type;
}

ggml_backend_buffer_type_t device_memory(ggml_backend_dev_t device) {
    static ggml_backend_buffer_type type = new_buffer_type(device, false);
    return &type;
}

ggml_backend_buffer_type_t host_memory(ggml_backend_dev_t device) {
    static ggml_backend_buffer_type type = new_buffer_type(device, true);
    return &type;
}

// --- computation ---

ggml_backend_t new_backend(ggml_backend_dev_t device, const char *) {
    static ggml_guid guid           = {'n', 'u', 'l', 'l'};
    auto *           backend        = new ggml_backend{};
    backend->guid                   = &guid;
    backend->device                 = device;
    backend->iface.get_name         = [](ggml_backend_t) { return DEVICE_NAME; };
    backend->iface.free             = [](ggml_backend_t self) { delete self; };
    backend->iface.synchronize      = [](ggml_backend_t) {};
    backend->iface.graph_compute    = [](ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_SUCCESS; };
    backend->iface.cpy_tensor_async = [](ggml_backend_t, ggml_backend_t, const ggml_tensor *, ggml_tensor *) {
        return true;
    };
    backend->iface.set_tensor_async = [](ggml_backend_t, ggml_tensor *, const void *, size_t, size_t) {};
    backend->iface.get_tensor_async = [](ggml_backend_t, const ggml_tensor * tensor, void * data, size_t offset,
                                         size_t n_bytes) { get_tensor(nullptr, tensor, data, offset, n_bytes); };
    return backend;
}

// --- the device ---

void get_memory(ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = MEMORY; }

enum ggml_backend_dev_type get_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }

void get_props(ggml_backend_dev_t device, ggml_backend_dev_props * props) {
    *props             = {};
    props->name        = DEVICE_NAME;
    props->description = DESCRIPTION;
    props->type        = get_type(device);
    props->caps.async  = true;
    get_memory(device, &props->memory_free, &props->memory_total);
    props->caps.host_buffer = true;
}

ggml_backend_device new_device(ggml_backend_reg_t reg) {
    ggml_backend_device device        = {};
    device.reg                        = reg;
    device.iface.get_name             = [](ggml_backend_dev_t) { return DEVICE_NAME; };
    device.iface.get_description      = [](ggml_backend_dev_t) { return DESCRIPTION; };
    device.iface.get_memory           = get_memory;
    device.iface.get_type             = get_type;
    device.iface.get_props            = get_props;
    device.iface.init_backend         = new_backend;
    device.iface.get_buffer_type      = device_memory;
    device.iface.get_host_buffer_type = host_memory;
    device.iface.supports_op          = [](ggml_backend_dev_t, const ggml_tensor *) { return true; };
    device.iface.supports_buft        = [](ggml_backend_dev_t self, ggml_backend_buffer_type_t type) {
        return type == device_memory(self);
    };
    return device;
}

ggml_backend_dev_t get_device(ggml_backend_reg_t reg, size_t) {
    static ggml_backend_device device = new_device(reg);
    return &device;
}

ggml_backend_reg new_reg() {
    ggml_backend_reg reg       = {};
    reg.api_version            = GGML_BACKEND_API_VERSION;
    reg.iface.get_name         = [](ggml_backend_reg_t) { return NAME; };
    reg.iface.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
    reg.iface.get_device       = get_device;
    reg.iface.get_proc_address = [](ggml_backend_reg_t, const char *) -> void * { return nullptr; };
    return reg;
}

}  // namespace

extern "C" ggml_backend_reg_t null_backend_reg(BufferFromPtr buffer_from_ptr) {
    static ggml_backend_reg reg = new_reg();
    g_buffer_from_ptr           = buffer_from_ptr;
    return &reg;
}
