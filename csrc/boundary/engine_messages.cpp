#include "boundary/engine_messages.hpp"

#include <cstdlib>

namespace {

using pyg::Complaint;

bool says(const std::string & words, const char * phrase) { return words.find(phrase) != std::string::npos; }

// The text between `before` and `after`; "" when either is missing.
std::string text_between(const std::string & words, const std::string & before, const std::string & after) {
    const size_t begin = words.find(before);
    if (begin == std::string::npos) {
        return "";
    }
    const size_t end = words.find(after, begin + before.size());
    return end == std::string::npos ? "" : words.substr(begin + before.size(), end - begin - before.size());
}

// Reads "  576,  1536" from where `before` ends.
std::vector<int64_t> sizes_after(const std::string & words, const char * before) {
    std::vector<int64_t> sizes;
    const size_t         begin = words.find(before);
    if (begin == std::string::npos) {
        return sizes;
    }
    const char * at  = words.c_str() + begin + std::char_traits<char>::length(before);
    char *       end = nullptr;
    for (int64_t size = std::strtoll(at, &end, 10); end != at; size = std::strtoll(at, &end, 10)) {
        sizes.push_back(size);
        at = *end == ',' ? end + 1 : end;
    }
    return sizes;
}

Complaint of_kind(Complaint::Kind kind, const std::string & tensor = "") {
    Complaint complaint;
    complaint.kind   = kind;
    complaint.tensor = tensor;
    return complaint;
}

// CUDA and the engine itself; what it says of exceptions; then the names of Vulkan's results.
bool says_no_memory(const std::string & words) {
    return says(words, "out of memory") || says(words, "insufficient memory") || says(words, "unable to allocate") ||
           says(words, "failed to allocate") || says(words, "std::bad_alloc") || says(words, "encountered bad_alloc") ||
           says(words, "ErrorOutOfDeviceMemory") || says(words, "ErrorOutOfHostMemory");
}

Complaint no_memory(const std::string & words) {
    Complaint                  complaint = of_kind(Complaint::NO_MEMORY);
    const std::vector<int64_t> n_bytes   = sizes_after(words, " buffer of size ");
    if (!n_bytes.empty()) {
        complaint.buffer_type = text_between(words, ": failed to allocate ", " buffer of size ");
        complaint.n_bytes     = static_cast<uint64_t>(n_bytes.front());
    }
    return complaint;
}

}  // namespace

namespace pyg {

Complaint understood(const std::string & words) {
    if (says(words, "unknown model architecture")) {
        return of_kind(Complaint::UNKNOWN_ARCHITECTURE);
    }
    if (says(words, "LLAMA_SPLIT_MODE_TENSOR not implemented for architecture")) {
        return of_kind(Complaint::NOT_DIVISIBLE);
    }
    std::string tensor = text_between(words, "tensor '", "' has wrong shape; expected");
    if (!tensor.empty()) {
        return {Complaint::TENSOR_SHAPE,      tensor, sizes_after(words, "; expected "),
                sizes_after(words, ", got "), "",     0};
    }
    tensor = text_between(words, "tensor '", "' not found");
    if (tensor.empty()) {
        tensor = text_between(words, "missing tensor '", "'");
    }
    if (!tensor.empty()) {
        return of_kind(Complaint::TENSOR_MISSING, tensor);
    }
    if (says(words, "wrong number of tensors")) {
        return of_kind(Complaint::TENSORS_LEFT_OVER);
    }
    return says_no_memory(words) ? no_memory(words) : Complaint{};
}

bool is_about_scratch(const std::string & words) { return says(words, "failed to allocate compute "); }

}  // namespace pyg
