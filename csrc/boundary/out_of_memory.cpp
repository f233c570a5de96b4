#include "boundary/out_of_memory.hpp"

#include "boundary/engine_messages.hpp"
#include "ggml-backend.h"
#include "pyggml.h"
#include "remote/hosts.hpp"

#include <optional>

namespace {

// Free bytes of the memory with this name.
std::optional<uint64_t> n_free(const std::string & buffer_type) {
    std::vector<ggml_backend_dev_t> devices = pyg::devices_of_hosts();
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        devices.push_back(ggml_backend_dev_get(i));
    }
    for (const ggml_backend_dev_t device : devices) {
        if (buffer_type != ggml_backend_buft_name(ggml_backend_dev_buffer_type(device))) {
            continue;
        }
        if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) {
            return pyg_memory_available();
        }
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        return free;
    }
    return std::nullopt;
}

}  // namespace

namespace pyg {

Failure no_memory(const std::string & what, const std::string & messages) {
    const FailureCause cause = failure_cause(messages);
    if (cause.n_bytes == 0) {
        return fail(PYG_ERR_OUT_OF_MEMORY, "%s needs more memory than is available: %s", what.c_str(),
                    messages.empty() ? "an allocation failed" : messages.c_str());
    }
    Failure failure = fail(PYG_ERR_OUT_OF_MEMORY, "%s needs %s in %s, which could not be allocated", what.c_str(),
                           bytes_text(cause.n_bytes).c_str(), cause.buffer_type.c_str());
    failure.required_bytes = cause.n_bytes;
    // Memory allocated before the failure is free again, so more may be free than was requested.
    const auto available = n_free(cause.buffer_type);
    if (available && *available < cause.n_bytes) {
        failure.available_bytes = *available;
        failure.message += ": " + bytes_text(*available) + " is free";
    }
    return failure;
}

}  // namespace pyg
