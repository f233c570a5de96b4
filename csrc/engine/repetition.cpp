#include "engine/repetition.hpp"

#include <algorithm>
#include <vector>

namespace {

constexpr size_t MIN_TOKENS = 1024;
constexpr size_t MIN_COPIES = 4;
constexpr size_t WINDOW     = 8192;
constexpr size_t STEP       = 32;  // tokens between two checks, which then cost two microseconds per token at most

}  // namespace

namespace pyg {

bool is_repetition_due(size_t n_tokens) { return n_tokens >= MIN_TOKENS && n_tokens % STEP == 0; }

// The prefix function (Knuth, Morris and Pratt) of the reversed tokens: `border` of a prefix is the length of its
// longest proper prefix that is also its suffix, so the prefix consists of copies of its last `length - border` tokens.
bool ends_in_repetition(const int32_t * tokens, size_t n_tokens) {
    const size_t        n    = std::min(n_tokens, WINDOW);
    const int32_t *     last = tokens + n_tokens - 1;
    std::vector<size_t> borders(n);
    for (size_t i = 1; i < n; i++) {
        size_t border = borders[i - 1];
        while (border > 0 && last[-static_cast<ptrdiff_t>(i)] != last[-static_cast<ptrdiff_t>(border)]) {
            border = borders[border - 1];
        }
        border += last[-static_cast<ptrdiff_t>(i)] == last[-static_cast<ptrdiff_t>(border)] ? 1 : 0;
        borders[i]          = border;
        const size_t length = i + 1;
        if (length >= std::max(MIN_TOKENS, MIN_COPIES * (length - border))) {
            return true;
        }
    }
    return false;
}

}  // namespace pyg
