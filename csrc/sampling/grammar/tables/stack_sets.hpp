// Sets of parser stacks, each stored once.
#pragma once

#include "sampling/grammar/steps/stacks.hpp"
#include "sampling/grammar/tables/arena.hpp"
#include "sampling/grammar/tables/id_index.hpp"

#include <algorithm>
#include <vector>

namespace pyg {

class StackSets {
  public:
    // Sorted. Stays valid.
    struct Set {
        const StackId * stacks = nullptr;
        uint32_t        n      = 0;

        const StackId * begin() const { return stacks; }
        const StackId * end() const { return stacks + n; }
        bool            empty() const { return n == 0; }
    };

    Set    operator[](uint32_t id) const { return sets_[id]; }
    size_t size() const { return sets_.size(); }
    size_t n_bytes() const { return n_bytes_; }

    // `stacks`: sorted, without duplicates.
    uint32_t id_of(const std::vector<StackId> & stacks) {
        uint64_t hash = stacks.size();
        for (const StackId stack : stacks) {
            hash = mixed_hash(hash, stack);
        }
        const uint32_t known = index_.find(hash, [&](uint32_t id) {
            return sets_[id].n == stacks.size() && std::equal(stacks.begin(), stacks.end(), sets_[id].begin());
        });
        if (known != IdIndex::NONE) {
            return known;
        }
        index_.reserve_one();
        StackId * const copy = stacks_.allocate(stacks.size());
        std::copy(stacks.begin(), stacks.end(), copy);
        sets_.push_back({copy, static_cast<uint32_t>(stacks.size())});
        n_bytes_ += stacks.size() * sizeof(StackId) + sizeof(Set) + 4 * sizeof(uint64_t);
        index_.add(hash, static_cast<uint32_t>(sets_.size() - 1));
        return static_cast<uint32_t>(sets_.size() - 1);
    }

  private:
    std::vector<Set> sets_;
    Arena<StackId>   stacks_;
    IdIndex          index_;
    size_t           n_bytes_ = 0;
};

}  // namespace pyg
