// KV cells of each sequence: bookkeeping only, no tensors.
//
// A unified KV cache is one array of cells, one per token. Sequences may share the cells of a common prefix; a cell is
// free when no sequence refers to it.
#pragma once

#include <cstdint>
#include <vector>

namespace pyg {

class KvCells {
  public:
    KvCells(uint32_t n_cells, int32_t n_seq);

    uint32_t n_cells() const { return static_cast<uint32_t>(ref_counts_.size()); }
    uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
    uint32_t n_used(int32_t seq_id) const { return static_cast<uint32_t>(cells_of_[seq_id].size()); }

    // Cells of at least one of these sequences.
    uint32_t n_used_by(const std::vector<int32_t> & seq_ids) const;

    // allocate and share may throw std::bad_alloc, with fewer cells allocated or none.
    void allocate(int32_t seq_id, uint32_t n);         // n cells must be free
    void share(int32_t from, int32_t to, uint32_t n);  // the first n; `to` must be empty
    void truncate(int32_t seq_id, uint32_t n);         // keeps the first n

  private:
    std::vector<uint32_t>              ref_counts_;  // by cell: sequences that refer to it
    std::vector<uint32_t>              free_;
    std::vector<std::vector<uint32_t>> cells_of_;  // by sequence, in order of position
};

}  // namespace pyg
