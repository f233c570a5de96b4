#include "chat/linear_time_search.hpp"

#include "platform/platform.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

struct Free {
    void operator()(char * memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

// Not with `operator new`, which throws beyond a template's limits.
Memory reversed(const char * begin, size_t size) {
    Memory memory(static_cast<char *>(std::malloc(size)));
    if (memory) {
        std::reverse_copy(begin, begin + size, memory.get());
    }
    return memory;
}

// Offset of the last `part` in text[0, end), in quadratic time.
size_t last_by_trying(const char * text, size_t end, const char * part, size_t size) noexcept {
    for (; end >= size; end--) {
        if (std::memcmp(text + end - size, part, size) == 0) {
            return end - size;
        }
    }
    return std::string::npos;
}

// The same in linear time. Searches windows from the end, so that a near match is found soon.
size_t last_before(const char * text, size_t end, const char * part, size_t size) noexcept {
    constexpr size_t FEW        = 4096;
    const Memory     last_first = end * size <= FEW ? nullptr : reversed(part, size);
    while (end >= size) {
        const size_t window   = std::min(end, 4 * size);
        const Memory searched = last_first ? reversed(text + end - window, window) : nullptr;
        if (!searched) {  // too short to be worth it, or out of memory
            return last_by_trying(text, end, part, size);
        }
        const void * found = pyg::platform::find_bytes(searched.get(), window, last_first.get(), size);
        if (found) {
            return end - static_cast<size_t>(static_cast<const char *>(found) - searched.get()) - size;
        }
        end -= window - (size - 1);
    }
    return std::string::npos;
}

}  // namespace

namespace pyg {

size_t find_text(const std::string & text, const char * part, size_t position, size_t part_size) noexcept {
    if (position > text.size()) {
        return std::string::npos;
    }
    const char * begin = text.data();
    const void * found = pyg::platform::find_bytes(begin + position, text.size() - position, part, part_size);
    return found ? static_cast<size_t>(static_cast<const char *>(found) - begin) : std::string::npos;
}

size_t rfind_text(const std::string & text, const char * part, size_t position, size_t part_size) noexcept {
    if (part_size > text.size()) {
        return std::string::npos;
    }
    const size_t last = std::min(position, text.size() - part_size);
    return part_size == 0 ? last : last_before(text.data(), last + part_size, part, part_size);
}

}  // namespace pyg
