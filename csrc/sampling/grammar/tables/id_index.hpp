// Hash index of items that have ids, for tables that store equal items once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyg {

// Open addressing; the items themselves are elsewhere. For one thread at a time.
class IdIndex {
  public:
    static constexpr uint32_t NONE = UINT32_MAX;

    // The id for which same(id) is true, among those with this hash; or NONE.
    template <class Same>
    uint32_t find(uint64_t hash, Same && same) const {
        const auto tag = static_cast<uint32_t>(hash);
        for (size_t i = tag & mask_; slots_[i].id != NONE; i = (i + 1) & mask_) {
            if (slots_[i].tag == tag && same(slots_[i].id)) {
                return slots_[i].id;
            }
        }
        return NONE;
    }

    // Makes the next add() succeed whatever memory is left, so that an item can be stored before it is indexed.
    void reserve_one() {
        if (2 * (n_ + 1) <= slots_.size()) {
            return;
        }
        std::vector<Slot> larger(2 * slots_.size());
        larger.swap(slots_);
        mask_ = slots_.size() - 1;
        for (const Slot & slot : larger) {
            if (slot.id != NONE) {
                place(slot);
            }
        }
    }

    // The id of an item that find() does not find. After reserve_one().
    void add(uint64_t hash, uint32_t id) {
        place({static_cast<uint32_t>(hash), id});
        n_++;
    }

    size_t n_bytes() const { return slots_.size() * sizeof(Slot); }

  private:
    struct Slot {
        uint32_t tag = 0;
        uint32_t id  = NONE;
    };

    void place(Slot slot) {
        size_t i = slot.tag & mask_;
        while (slots_[i].id != NONE) {
            i = (i + 1) & mask_;
        }
        slots_[i] = slot;
    }

    std::vector<Slot> slots_ = std::vector<Slot>(64);
    size_t            mask_  = 63;
    size_t            n_     = 0;
};

// Mixes one more word into a hash; all bits of the result depend on all of both.
inline uint64_t mixed_hash(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

}  // namespace pyg
