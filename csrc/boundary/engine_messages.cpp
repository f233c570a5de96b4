#include "boundary/engine_messages.hpp"

#include "ggml-backend.h"
#include "remote/hosts.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace {

using pyg::FailureCause;

bool contains(const std::string & messages, const char * phrase) { return messages.find(phrase) != std::string::npos; }

// Text between `before` and `after`; "" if either is missing.
std::string text_between(const std::string & messages, const std::string & before, const std::string & after) {
    const size_t begin = messages.find(before);
    if (begin == std::string::npos) {
        return "";
    }
    const size_t end = messages.find(after, begin + before.size());
    return end == std::string::npos ? "" : messages.substr(begin + before.size(), end - begin - before.size());
}

// Parse numbers such as "  576,  1536" that follow `before`.
std::vector<int64_t> sizes_after(const std::string & messages, const char * before) {
    std::vector<int64_t> sizes;
    const size_t         begin = messages.find(before);
    if (begin == std::string::npos) {
        return sizes;
    }
    const char * at  = messages.c_str() + begin + std::char_traits<char>::length(before);
    char *       end = nullptr;
    for (int64_t size = std::strtoll(at, &end, 10); end != at; size = std::strtoll(at, &end, 10)) {
        sizes.push_back(size);
        at = *end == ',' ? end + 1 : end;
    }
    return sizes;
}

// CUDA and the engine itself; its messages about exceptions; names of Vulkan's results.
constexpr const char * NO_MEMORY_PHRASES[] = {"out of memory",          "insufficient memory", "unable to allocate",
                                              "failed to allocate",     "std::bad_alloc",      "encountered bad_alloc",
                                              "ErrorOutOfDeviceMemory", "ErrorOutOfHostMemory"};

FailureCause no_memory(const std::string & messages) {
    FailureCause               cause   = {FailureCause::NO_MEMORY};
    const std::vector<int64_t> n_bytes = sizes_after(messages, " buffer of size ");
    if (!n_bytes.empty()) {
        cause.buffer_type = text_between(messages, ": failed to allocate ", " buffer of size ");
        cause.n_bytes     = static_cast<uint64_t>(n_bytes.front());
    }
    return cause;
}

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

FailureCause failure_cause(const std::string & messages) {
    if (contains(messages, "unknown model architecture")) {
        return {FailureCause::UNKNOWN_ARCHITECTURE};
    }
    if (contains(messages, "LLAMA_SPLIT_MODE_TENSOR not implemented for architecture")) {
        return {FailureCause::NOT_DIVISIBLE};
    }
    std::string tensor = text_between(messages, "tensor '", "' has wrong shape; expected");
    if (!tensor.empty()) {
        return {FailureCause::TENSOR_SHAPE, tensor, sizes_after(messages, "; expected "),
                sizes_after(messages, ", got ")};
    }
    tensor = text_between(messages, "tensor '", "' not found");
    if (tensor.empty()) {
        tensor = text_between(messages, "missing tensor '", "'");
    }
    if (!tensor.empty()) {
        return {FailureCause::TENSOR_MISSING, tensor};
    }
    if (contains(messages, "wrong number of tensors")) {
        return {FailureCause::TENSORS_LEFT_OVER};
    }
    const bool lacks_memory = std::any_of(std::begin(NO_MEMORY_PHRASES), std::end(NO_MEMORY_PHRASES),
                                          [&](const char * phrase) { return contains(messages, phrase); });
    return lacks_memory ? no_memory(messages) : FailureCause{};
}

void throw_if_out_of_memory(const std::string & what, const std::string & messages) {
    const FailureCause cause = failure_cause(messages);
    if (cause.kind != FailureCause::NO_MEMORY) {
        return;
    }
    if (cause.n_bytes == 0) {
        throw fail(PYG_ERR_OUT_OF_MEMORY, "%s needs more memory than is available: %s", what.c_str(), messages.c_str());
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
    throw failure;
}

bool is_scratch_allocation_failure(const std::string & messages) {
    return contains(messages, "failed to allocate compute ");
}

}  // namespace pyg
