// Transitions of an automaton over bytes, computed when they are first taken.
#pragma once

#include "sampling/grammar/tables/arena.hpp"
#include "sampling/grammar/tables/first_bytes.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pyg {

// A row for each state, with a slot for each byte that may lead on: few states have many.
class Transitions {
  public:
    static constexpr uint32_t UNKNOWN = UINT32_MAX;  // not computed yet

    bool   has_row(uint32_t state) const { return state < rows_.size() && rows_[state].slots != nullptr; }
    size_t n_bytes() const { return n_bytes_; }

    // A new row: the other bytes lead nowhere.
    void add_row(uint32_t state, const FirstBytes & bytes) {
        if (state >= rows_.size()) {
            rows_.resize(std::max<size_t>(state + 1, rows_.size() * 2));
        }
        Row row;
        row.bytes  = bytes;
        uint32_t n = 0;
        for (int i = 0; i < 4; i++) {
            row.n_before[i] = static_cast<uint8_t>(n);
            n += n_bits(bytes.words[i]);
        }
        row.slots = slots_.allocate(std::max(n, 1u));
        std::fill_n(row.slots, n, UNKNOWN);
        rows_[state] = row;
        n_bytes_ += sizeof(Row) + n * sizeof(uint32_t);
    }

    // Of a state with a row; null if the byte leads nowhere. Stays valid.
    uint32_t * slot(uint32_t state, uint8_t byte) const {
        const Row &    row  = rows_[state];
        const uint64_t word = row.bytes.words[byte >> 6];
        const uint64_t bit  = uint64_t{1} << (byte & 63);
        return word & bit ? row.slots + row.n_before[byte >> 6] + n_bits(word & (bit - 1)) : nullptr;
    }

  private:
    struct Row {
        FirstBytes bytes;
        uint32_t * slots       = nullptr;
        uint8_t    n_before[4] = {};  // bytes of the set in the words before
    };

    // std::popcount of C++20; the compiler's own calls a function where the instruction may be missing.
    static uint32_t n_bits(uint64_t word) {
        word -= word >> 1 & 0x5555555555555555u;
        word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
        return static_cast<uint32_t>(((word + (word >> 4)) & 0x0F0F0F0F0F0F0F0Fu) * 0x0101010101010101u >> 56);
    }

    std::vector<Row> rows_;
    Arena<uint32_t>  slots_;
    size_t           n_bytes_ = 0;
};

}  // namespace pyg
