#include "chat/linear_search.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

struct Free {
    void operator()(char * memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

// Not from `operator new`, which a template's limits make throw.
Memory reversed(const char * begin, size_t size) {
    Memory memory(static_cast<char *>(std::malloc(size)));
    if (memory) {
        std::reverse_copy(begin, begin + size, memory.get());
    }
    return memory;
}

// Where the last `part` in text[0, end) begins. Looks in windows from the end, so that one that is near is found soon.
size_t last_before(const char * text, size_t end, const char * part, size_t size) noexcept {
    const Memory last_first = reversed(part, size);
    while (last_first && end >= size) {
        const size_t window   = std::min(end, 4 * size);
        const Memory searched = reversed(text + end - window, window);
        if (!searched) {
            break;
        }
        const void * found = memmem(searched.get(), window, last_first.get(), size);
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
    const void * found = memmem(begin + position, text.size() - position, part, part_size);
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
