// The last occurrence of a text equals the standard library's, found in linear time or, without memory, in quadratic
// time.
#include "chat/linear_time_search.hpp"
#include "tests/support/testing.hpp"

#include <random>
#include <string>
#include <string_view>

namespace {

bool no_memory = false;

}  // namespace

// Replaces malloc with the linker's help (CMakeLists.txt).
extern "C" void * __real_malloc(size_t size);
extern "C" void * __wrap_malloc(size_t size);
extern "C" void * __wrap_malloc(size_t size) { return no_memory ? nullptr : __real_malloc(size); }

int main() {
    std::mt19937 random(7);
    const auto   text_of = [&](size_t max_size) {
        std::string text(random() % (max_size + 1), 'a');
        for (char & each : text) {
            each = static_cast<char>('a' + random() % 2);
        }
        return text;
    };
    for (int i = 0; i < 3000; i++) {
        const std::string text = text_of(i % 3 == 0 ? 3000 : 20), part = text_of(i % 2 == 0 ? 12 : 3);
        const size_t      position = i % 5 == 0 ? std::string::npos : random() % (text.size() + 3);
        const size_t      expected = std::string_view(text).rfind(part, position);
        CHECK(pyg::rfind_text(text, part.data(), position, part.size()) == expected);
        no_memory = true;
        CHECK(pyg::rfind_text(text, part.data(), position, part.size()) == expected);
        no_memory = false;
    }
    return 0;
}
