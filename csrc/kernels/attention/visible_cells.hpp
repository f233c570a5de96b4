// Visible cells of each row: those that its mask does not hide, in order of position.
//
// Cell r of a row whose first cell has position p gets the index p + r. So indices depend neither on where cells are in
// the cache, nor on other sequences or rows, and consecutive rows of a sequence have the same cells at the same
// indices.
#pragma once

#include "kernels/attention/stored_keys.hpp"
#include "kernels/attention/workspace.hpp"

#include <numeric>

namespace pyg::kernels {

constexpr uint16_t HIDDEN = 0xFC00;  // -inf of f16

class VisibleCellLister {
  public:
    VisibleCellLister(const ggml_tensor * op, const Sizes & sizes, const Shared & shared, const Scratch & scratch)
        : sizes_(sizes), shared_(shared), scratch_(scratch), n_tokens_(op->src[0]->ne[1]), mask_(op->src[3]) {
        const ggml_tensor * const keys = stored(op->src[1]);
        const ggml_tensor * const base = keys->view_src;
        if (base && base->extra && keys->nb[1] == base->nb[1] && keys->view_offs % base->nb[2] < base->nb[1]) {
            positions_    = positions_in(base);
            first_stream_ = static_cast<int64_t>(keys->view_offs / base->nb[2]);
        }
    }

    const uint16_t * mask_of(int64_t row) const {
        const int64_t stream = row / n_tokens_;
        return reinterpret_cast<const uint16_t *>(static_cast<const char *>(mask_->data) +
                                                  row % n_tokens_ * mask_->nb[1] +
                                                  stream % mask_->ne[3] * mask_->nb[3]);
    }

    // List the cells of rows [first, end), stored in `shared` from `at` on; up to `n_joint` rows share a list.
    void list(int64_t first, int64_t end, int64_t at, int64_t n_joint) {
        for (int64_t row = first; row < end; ++row, ++at) {
            Span &        span = shared_.spans[at];
            const int64_t n    = mask_ ? list_visible(row, span) : all(span);
            span.low           = sort(row, n);
            span.high          = span.low + n;
            shared_.rows[at]   = {};
            if (row == first || row - rows_->first == n_joint || !join(row, span)) {
                begin(row, at, span);
            }
        }
    }

  private:
    int64_t all(Span & span) const {
        span.biased = false;
        std::iota(scratch_.listed, scratch_.listed + sizes_.n_cells, 0);
        return sizes_.n_cells;
    }

    // List the cells that a row sees.
    int64_t list_visible(int64_t row, Span & span) const {
        const uint16_t * const mask = mask_of(row);
        int64_t                n    = 0;
        uint32_t               any  = 0;
        for (int64_t i = 0; i < sizes_.n_cells; i += 32) {
            uint32_t bits, zeros;
            if (i + 32 <= sizes_.n_cells) {
                bits  = ~equal_mask(mask + i, HIDDEN);
                zeros = bits ? equal_mask(mask + i, 0) : 0;
            } else {
                bits = zeros = 0;
                for (int64_t j = i; j < sizes_.n_cells; ++j) {
                    bits |= static_cast<uint32_t>(mask[j] != HIDDEN) << (j - i);
                    zeros |= static_cast<uint32_t>(mask[j] == 0) << (j - i);
                }
            }
            any |= bits & ~zeros;
            if (bits == UINT32_MAX) {
                std::iota(scratch_.listed + n, scratch_.listed + n + 32, static_cast<int32_t>(i));
                n += 32;
                continue;
            }
            for (; bits; bits &= bits - 1) {
                scratch_.listed[n++] = static_cast<int32_t>(i + __builtin_ctz(bits));
            }
        }
        span.biased = any != 0;
        return n;
    }

    // Sort the cells of a row by position; return the first index.
    int64_t sort(int64_t row, int64_t n) const {
        if (!positions_ || n == 0) {
            return 0;
        }
        const int64_t stream = first_stream_ + row / n_tokens_;
        if (!positions_->in_order(positions_->cache, stream, scratch_.listed, n)) {
            positions_->keys(positions_->cache, stream, scratch_.listed, n, scratch_.order);
            for (int64_t i = 0; i < n; ++i) {
                scratch_.keyed[i] = {scratch_.order[i], scratch_.listed[i]};
            }
            std::sort(scratch_.keyed, scratch_.keyed + n, [](const KeyedCell & a, const KeyedCell & b) {
                return a.key != b.key ? a.key < b.key : a.cell < b.cell;
            });
            for (int64_t i = 0; i < n; ++i) {
                scratch_.listed[i] = scratch_.keyed[i].cell;
            }
        }
        positions_->keys(positions_->cache, stream, scratch_.listed, 1, scratch_.order);
        return std::max<int64_t>(scratch_.order[0] >> 32, 0);
    }

    void begin(int64_t row, int64_t at, const Span & span) {
        list_ = shared_.cells + at * sizes_.n_cells;
        rows_ = shared_.rows + at;
        std::copy_n(scratch_.listed, span.high - span.low, list_);
        *rows_ = {row, row + 1, span.low, span.high, list_};
    }

    // Let a row share the list of the rows before, if its cells can be part of it.
    bool join(int64_t row, const Span & span) {
        const int64_t from = span.low - rows_->low, n = span.high - span.low;
        if (n == 0 || rows_->low == rows_->high || from < 0 || span.low > rows_->high || from + n > sizes_.n_cells ||
            row % n_tokens_ == 0) {
            return false;
        }
        const int64_t n_common = std::min(span.high, rows_->high) - span.low;
        if (!std::equal(scratch_.listed, scratch_.listed + n_common, list_ + from)) {
            return false;
        }
        std::copy(scratch_.listed + n_common, scratch_.listed + n, list_ + from + n_common);
        rows_->high = std::max(rows_->high, span.high);
        rows_->end  = row + 1;
        return true;
    }

    const Sizes &         sizes_;
    const Shared &        shared_;
    const Scratch &       scratch_;
    int64_t               n_tokens_;
    const ggml_tensor *   mask_;
    const pyg_positions * positions_    = nullptr;
    int64_t               first_stream_ = 0;
    RowGroup *            rows_         = nullptr;  // those that a row may join
    int32_t *             list_         = nullptr;  // of their cells
};

}  // namespace pyg::kernels
