// Set operations on code points.
#include "regex/char_set.hpp"

#include <algorithm>

namespace pyg {

CharSet CharSet::of(std::vector<std::pair<uint32_t, uint32_t>> ranges) {
    std::sort(ranges.begin(), ranges.end());
    CharSet set;
    for (const auto & [low, high] : ranges) {
        if (low > high) {
            continue;
        }
        if (!set.ranges.empty() && low <= set.ranges.back().second + 1) {
            set.ranges.back().second = std::max(set.ranges.back().second, high);
        } else {
            set.ranges.emplace_back(low, high);
        }
    }
    return set;
}

bool CharSet::meets(uint32_t low, uint32_t high) const {
    const auto after =
        std::upper_bound(ranges.begin(), ranges.end(), high,
                         [](uint32_t code_point, const auto & range) { return code_point < range.first; });
    return after != ranges.begin() && std::prev(after)->second >= low;
}

CharSet complement(const CharSet & set) {
    CharSet  result;
    uint32_t next = 0;
    for (const auto & [low, high] : set.ranges) {
        if (low > next) {
            result.ranges.emplace_back(next, low - 1);
        }
        next = high + 1;
    }
    if (next <= LAST_CODE_POINT) {
        result.ranges.emplace_back(next, LAST_CODE_POINT);
    }
    return result;
}

CharSet union_of(const CharSet & a, const CharSet & b) {
    std::vector<std::pair<uint32_t, uint32_t>> ranges = a.ranges;
    ranges.insert(ranges.end(), b.ranges.begin(), b.ranges.end());
    return CharSet::of(std::move(ranges));
}

CharSet intersection_of(const CharSet & a, const CharSet & b) {
    CharSet result;
    for (size_t i = 0, j = 0; i < a.ranges.size() && j < b.ranges.size();) {
        const uint32_t low  = std::max(a.ranges[i].first, b.ranges[j].first);
        const uint32_t high = std::min(a.ranges[i].second, b.ranges[j].second);
        if (low <= high) {
            result.ranges.emplace_back(low, high);
        }
        (a.ranges[i].second < b.ranges[j].second ? i : j)++;
    }
    return result;
}

}  // namespace pyg
