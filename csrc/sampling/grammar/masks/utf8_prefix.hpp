// UTF-8 read byte by byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pyg {

// Bits of an incomplete character, and the number of missing bytes; complete if none is missing.
struct Utf8Prefix {
    uint32_t value   = 0;
    uint32_t missing = 0;

    // Read a byte; false if no valid UTF-8 continues so. After a complete character a new one begins.
    bool read(uint8_t byte) {
        if (missing == 0) {
            const bool is_ascii = byte < 0x80;
            missing             = is_ascii ? 0 : byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
            value               = is_ascii ? byte : byte & (0x3Fu >> missing);
            return is_ascii || (byte >= 0xC2 && byte <= 0xF4);
        }
        if (byte >> 6 != 2) {
            return false;
        }
        const auto [low, high] = range();
        const uint32_t next    = value << 6 | (byte & 0x3Fu);
        const uint32_t shift   = 6 * (missing - 1);
        if ((next << shift) > high || ((next + 1) << shift) - 1 < low) {
            return false;
        }
        value = next;
        missing--;
        return true;
    }

    // The characters that this can become: no overlong forms, no surrogates, nothing above the last code point.
    std::pair<uint32_t, uint32_t> range() const {
        if (missing == 0) {
            return {value, value};
        }
        const uint32_t shift = 6 * missing;
        const uint32_t least = value != 0 ? 0 : missing == 3 ? 0x10000 : 0x800;
        uint32_t       low   = std::max(value << shift, least);
        uint32_t       high  = std::min<uint32_t>(((value + 1) << shift) - 1, 0x10FFFF);
        if (low >= 0xD800 && low <= 0xDFFF) {
            low = 0xE000;
        }
        if (high >= 0xD800 && high <= 0xDFFF) {
            high = 0xD7FF;
        }
        return {low, high};
    }
};

}  // namespace pyg
