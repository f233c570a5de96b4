#include "sampling/grammar/steps/read_texts.hpp"

#include "regex/utf8.hpp"

#include <algorithm>

namespace pyg {

uint32_t ReadTexts::after(uint32_t text, uint32_t code_point) {
    if (text == UNTRACKED || text == OTHER) {
        return text;
    }
    const uint64_t key   = static_cast<uint64_t>(text) << 32 | code_point;
    const auto     known = ids_.find(key);
    if (known != ids_.end()) {
        return known->second;
    }
    nodes_.push_back({text, code_point});
    return ids_.emplace(key, static_cast<uint32_t>(nodes_.size() - 1)).first->second;
}

std::string ReadTexts::utf8(uint32_t text) const {
    std::vector<uint32_t> characters;
    for (; text > OTHER; text = nodes_[text].before) {
        characters.push_back(nodes_[text].code_point);
    }
    std::string result;
    std::for_each(characters.rbegin(), characters.rend(), [&](uint32_t each) { append_utf8(result, each); });
    return result;
}

}  // namespace pyg
