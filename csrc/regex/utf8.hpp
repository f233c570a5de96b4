// UTF-8 and code points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

inline void append_utf8(std::string & text, uint32_t code_point) {
    const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
    if (code_point < 0x80) {
        add(code_point);
    } else if (code_point < 0x800) {
        add(0xC0 | code_point >> 6);
        add(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        add(0xE0 | code_point >> 12);
        add(0x80 | (code_point >> 6 & 0x3F));
        add(0x80 | (code_point & 0x3F));
    } else {
        add(0xF0 | code_point >> 18);
        add(0x80 | (code_point >> 12 & 0x3F));
        add(0x80 | (code_point >> 6 & 0x3F));
        add(0x80 | (code_point & 0x3F));
    }
}

// The code points of valid UTF-8.
inline std::vector<uint32_t> code_points_of(const std::string & text) {
    std::vector<uint32_t> result;
    for (const char each : text) {
        const auto byte = static_cast<uint8_t>(each);
        if (byte >> 6 == 2 && !result.empty()) {
            result.back() = result.back() << 6 | (byte & 0x3F);
        } else {
            result.push_back(byte < 0x80 ? byte : byte < 0xE0 ? byte & 0x1F : byte < 0xF0 ? byte & 0x0F : byte & 0x07);
        }
    }
    return result;
}

}  // namespace pyg
