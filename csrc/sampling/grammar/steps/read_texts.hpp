// Texts read so far, each stored once, as a tree of characters.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace pyg {

class ReadTexts {
  public:
    static constexpr uint32_t UNTRACKED = 0;  // stays so
    static constexpr uint32_t EMPTY     = 1;
    static constexpr uint32_t OTHER     = 2;  // stands for any text that was not read before

    uint32_t    after(uint32_t text, uint32_t code_point);
    std::string utf8(uint32_t text) const;
    size_t      n_bytes() const { return nodes_.size() * (sizeof(Node) + 6 * sizeof(uint64_t)); }

  private:
    struct Node {
        uint32_t before;
        uint32_t code_point;
    };

    std::vector<Node>                      nodes_ = {{0, 0}, {0, 0}, {0, 0}};
    std::unordered_map<uint64_t, uint32_t> ids_;
};

}  // namespace pyg
