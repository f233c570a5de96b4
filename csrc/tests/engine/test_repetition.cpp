// Sequences of tokens that count as endless repetitions, and others that do not.
#include "engine/repetition.hpp"
#include "tests/support/testing.hpp"

#include <cstdint>
#include <vector>

namespace {

// Some tokens that do not repeat, then copies of a block of `period` tokens.
std::vector<int32_t> repeated(size_t n_repeated, size_t period, size_t n_before = 100) {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < n_before + n_repeated; i++) {
        tokens.push_back(static_cast<int32_t>(i < n_before ? 1000000 + i : (i - n_before) % period));
    }
    return tokens;
}

bool is_repetition(const std::vector<int32_t> & tokens) {
    return pyg::ends_in_repetition(tokens.data(), tokens.size());
}

void test_length_and_copies() {
    for (const size_t period : {1, 2, 7, 33, 256}) {
        CHECK(is_repetition(repeated(1024, period)));
        CHECK(!is_repetition(repeated(1023, period)));
    }
    for (const size_t period : {300, 1000, 2048}) {
        CHECK(is_repetition(repeated(4 * period, period)));
        CHECK(!is_repetition(repeated(4 * period - 1, period)));
    }
    CHECK(!is_repetition(repeated(20000, 2049)));
}

void test_other_tokens() {
    CHECK(!is_repetition(repeated(0, 1, 20000)));
    auto ended = repeated(5000, 7);
    ended.push_back(-1);
    CHECK(!is_repetition(ended));
    auto list = repeated(5000, 7);
    for (size_t i = 0; i < list.size(); i += 7) {  // a number in each item
        list[i] = static_cast<int32_t>(i);
    }
    CHECK(!is_repetition(list));
}

}  // namespace

int main() {
    test_length_and_copies();
    test_other_tokens();
}
