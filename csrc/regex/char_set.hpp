// Sets of Unicode code points.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pyg {

constexpr uint32_t LAST_CODE_POINT = 0x10FFFF;

// Code points, as sorted inclusive ranges that neither touch nor overlap.
struct CharSet {
    std::vector<std::pair<uint32_t, uint32_t>> ranges;

    // Any ranges, in any order.
    static CharSet of(std::vector<std::pair<uint32_t, uint32_t>> ranges);
    static CharSet all() { return {{{0, LAST_CODE_POINT}}}; }

    bool contains(uint32_t code_point) const { return meets(code_point, code_point); }
    bool meets(uint32_t low, uint32_t high) const;  // true if it contains any of low..high
    bool is_empty() const { return ranges.empty(); }

    bool operator==(const CharSet & other) const { return ranges == other.ranges; }
};

CharSet complement(const CharSet & set);
CharSet union_of(const CharSet & a, const CharSet & b);
CharSet intersection_of(const CharSet & a, const CharSet & b);

}  // namespace pyg
