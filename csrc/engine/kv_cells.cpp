#include "engine/kv_cells.hpp"

#include <numeric>

namespace pyg {

KvCells::KvCells(uint32_t n_cells, int32_t n_seq) : ref_counts_(n_cells, 0), free_(n_cells), cells_of_(n_seq) {
    std::iota(free_.rbegin(), free_.rend(), 0);  // the lowest is allocated first
}

uint32_t KvCells::n_used_by(const std::vector<int32_t> & seq_ids) const {
    std::vector<bool> cells(n_cells(), false);
    uint32_t          n = 0;
    for (const int32_t seq_id : seq_ids) {
        for (const uint32_t cell : cells_of_[seq_id]) {
            n += !cells[cell];
            cells[cell] = true;
        }
    }
    return n;
}

void KvCells::allocate(int32_t seq_id, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t cell = free_.back();
        cells_of_[seq_id].push_back(cell);
        free_.pop_back();
        ref_counts_[cell] = 1;
    }
}

void KvCells::truncate(int32_t seq_id, uint32_t n) {
    std::vector<uint32_t> & cells = cells_of_[seq_id];
    while (cells.size() > n) {
        const uint32_t cell = cells.back();
        cells.pop_back();
        if (--ref_counts_[cell] == 0) {
            free_.push_back(cell);
        }
    }
}

void KvCells::share(int32_t from, int32_t to, uint32_t n) {
    cells_of_[to].assign(cells_of_[from].begin(), cells_of_[from].begin() + n);
    for (const uint32_t cell : cells_of_[to]) {
        ref_counts_[cell]++;
    }
}

}  // namespace pyg
