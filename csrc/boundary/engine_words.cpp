#include "boundary/engine_words.hpp"

#include <cstdlib>

namespace {

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

}  // namespace

namespace pyg {

Complaint understood(const std::string & words) {
    if (says(words, "unknown model architecture")) {
        return {Complaint::UNKNOWN_ARCHITECTURE, "", {}, {}};
    }
    std::string tensor = text_between(words, "tensor '", "' has wrong shape; expected");
    if (!tensor.empty()) {
        return {Complaint::TENSOR_SHAPE, tensor, sizes_after(words, "; expected "), sizes_after(words, ", got ")};
    }
    tensor = text_between(words, "tensor '", "' not found");
    if (tensor.empty()) {
        tensor = text_between(words, "missing tensor '", "'");
    }
    if (!tensor.empty()) {
        return {Complaint::TENSOR_MISSING, tensor, {}, {}};
    }
    if (says(words, "wrong number of tensors")) {
        return {Complaint::TENSORS_LEFT_OVER, "", {}, {}};
    }
    const bool no_memory =
        says(words, "out of memory") || says(words, "unable to allocate") || says(words, "failed to allocate");
    return {no_memory ? Complaint::NO_MEMORY : Complaint::OTHER, "", {}, {}};
}

}  // namespace pyg
