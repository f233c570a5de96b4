#include "boundary/engine_messages.hpp"

#include <cstdlib>

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

FailureCause of_kind(FailureCause::Kind kind, const std::string & tensor = "") {
    FailureCause cause;
    cause.kind   = kind;
    cause.tensor = tensor;
    return cause;
}

// CUDA and the engine itself; its messages about exceptions; names of Vulkan's results.
bool says_no_memory(const std::string & messages) {
    return contains(messages, "out of memory") || contains(messages, "insufficient memory") ||
           contains(messages, "unable to allocate") || contains(messages, "failed to allocate") ||
           contains(messages, "std::bad_alloc") || contains(messages, "encountered bad_alloc") ||
           contains(messages, "ErrorOutOfDeviceMemory") || contains(messages, "ErrorOutOfHostMemory");
}

FailureCause no_memory(const std::string & messages) {
    FailureCause               cause   = of_kind(FailureCause::NO_MEMORY);
    const std::vector<int64_t> n_bytes = sizes_after(messages, " buffer of size ");
    if (!n_bytes.empty()) {
        cause.buffer_type = text_between(messages, ": failed to allocate ", " buffer of size ");
        cause.n_bytes     = static_cast<uint64_t>(n_bytes.front());
    }
    return cause;
}

}  // namespace

namespace pyg {

FailureCause failure_cause(const std::string & messages) {
    if (contains(messages, "unknown model architecture")) {
        return of_kind(FailureCause::UNKNOWN_ARCHITECTURE);
    }
    if (contains(messages, "LLAMA_SPLIT_MODE_TENSOR not implemented for architecture")) {
        return of_kind(FailureCause::NOT_DIVISIBLE);
    }
    std::string tensor = text_between(messages, "tensor '", "' has wrong shape; expected");
    if (!tensor.empty()) {
        return {FailureCause::TENSOR_SHAPE,      tensor, sizes_after(messages, "; expected "),
                sizes_after(messages, ", got "), "",     0};
    }
    tensor = text_between(messages, "tensor '", "' not found");
    if (tensor.empty()) {
        tensor = text_between(messages, "missing tensor '", "'");
    }
    if (!tensor.empty()) {
        return of_kind(FailureCause::TENSOR_MISSING, tensor);
    }
    if (contains(messages, "wrong number of tensors")) {
        return of_kind(FailureCause::TENSORS_LEFT_OVER);
    }
    return says_no_memory(messages) ? no_memory(messages) : FailureCause{};
}

bool is_scratch_allocation_failure(const std::string & messages) {
    return contains(messages, "failed to allocate compute ");
}

}  // namespace pyg
