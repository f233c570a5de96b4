// KV cells of each sequence: bookkeeping only, no tensors.
//
// A unified KV cache is one array of cells, one per token. Sequences may share the cells of a common prefix; a cell is
// free when no sequence refers to it. A KV cache of streams gives each sequence as many cells of its own, and prefixes
// are copied.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace pyg {

class KvCells {
  public:
    // `n_per_stream`: cells of each sequence's own; 0: sequences share all cells.
    KvCells(uint32_t n_cells, int32_t n_seq, uint32_t n_per_stream = 0)
        : ref_counts_(n_cells, 0), free_(n_cells), cells_of_(n_seq), n_per_stream_(n_per_stream) {
        std::iota(free_.rbegin(), free_.rend(), 0);  // the lowest is allocated first
    }

    uint32_t n_cells() const { return static_cast<uint32_t>(ref_counts_.size()); }
    uint32_t n_per_stream() const { return n_per_stream_; }
    // Most cells of one sequence.
    uint32_t n_per_sequence() const { return n_per_stream_ ? n_per_stream_ : n_cells(); }
    uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
    uint32_t n_used(int32_t seq_id) const { return static_cast<uint32_t>(cells_of_[seq_id].size()); }

    // Cells of at least one of these sequences.
    uint32_t n_used_by(const std::vector<int32_t> & seq_ids) const {
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

    // allocate and share may throw std::bad_alloc, with fewer cells allocated or none. `n` cells must be free.
    void allocate(int32_t seq_id, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t cell = free_.back();
            cells_of_[seq_id].push_back(cell);
            free_.pop_back();
            ref_counts_[cell] = 1;
        }
    }

    // Share the first `n`, or count the cells of their copies; `to` must be empty.
    void share(int32_t from, int32_t to, uint32_t n) {
        if (n_per_stream_) {
            allocate(to, n);
            return;
        }
        cells_of_[to].assign(cells_of_[from].begin(), cells_of_[from].begin() + n);
        for (const uint32_t cell : cells_of_[to]) {
            ref_counts_[cell]++;
        }
    }

    // Keep the first `n`.
    void truncate(int32_t seq_id, uint32_t n) {
        for (std::vector<uint32_t> & cells = cells_of_[seq_id]; cells.size() > n; cells.pop_back()) {
            if (--ref_counts_[cells.back()] == 0) {
                free_.push_back(cells.back());
            }
        }
    }

  private:
    std::vector<uint32_t>              ref_counts_;  // by cell: sequences that refer to it
    std::vector<uint32_t>              free_;
    std::vector<std::vector<uint32_t>> cells_of_;  // by sequence, in order of position
    uint32_t                           n_per_stream_;
};

}  // namespace pyg
