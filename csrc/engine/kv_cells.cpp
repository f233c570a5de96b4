#include "engine/kv_cells.hpp"

#include <numeric>

namespace pyg {

Cells::Cells(uint32_t n_cells, int32_t n_seq) : n_holders_(n_cells, 0), free_(n_cells), held_(n_seq) {
    std::iota(free_.rbegin(), free_.rend(), 0);  // the lowest is taken first
}

uint32_t Cells::n_held_by(const std::vector<int32_t> & seq_ids) const {
    std::vector<bool> held(n_cells(), false);
    uint32_t          n = 0;
    for (const int32_t seq_id : seq_ids) {
        for (const uint32_t cell : held_[seq_id]) {
            n += !held[cell];
            held[cell] = true;
        }
    }
    return n;
}

void Cells::take(int32_t seq_id, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t cell = free_.back();
        held_[seq_id].push_back(cell);
        free_.pop_back();
        n_holders_[cell] = 1;
    }
}

void Cells::truncate(int32_t seq_id, uint32_t n) {
    std::vector<uint32_t> & held = held_[seq_id];
    while (held.size() > n) {
        const uint32_t cell = held.back();
        held.pop_back();
        if (--n_holders_[cell] == 0) {
            free_.push_back(cell);
        }
    }
}

void Cells::share(int32_t from, int32_t to, uint32_t n) {
    held_[to].assign(held_[from].begin(), held_[from].begin() + n);
    for (const uint32_t cell : held_[to]) {
        n_holders_[cell]++;
    }
}

}  // namespace pyg
