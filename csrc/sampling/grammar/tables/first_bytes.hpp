// Bytes that may come next.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyg {

struct FirstBytes {
    uint64_t words[4] = {};

    void add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
    void add_all(const char * bytes) {
        for (; *bytes; bytes++) {
            add(static_cast<uint8_t>(*bytes));
        }
    }
    void add_range(uint8_t low, uint8_t high) {
        for (unsigned byte = low; byte <= high; byte++) {
            add(static_cast<uint8_t>(byte));
        }
    }
    bool has(uint8_t byte) const { return words[byte >> 6] >> (byte & 63) & 1; }
};

}  // namespace pyg
