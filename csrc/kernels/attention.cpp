// Attention of each row to its sequence's own cells, in order of position.
//
// The cells that a row sees are those that its mask does not hide. In order of position, they stand in blocks of 32:
// cell r of a row whose first cell has position p lies in lane (p + r) % 32 of block (p + r) / 32. So nothing of a
// row's arithmetic (attention_block.hpp) depends on where cells lie, on those of other sequences, or on other rows.
// Rows that follow each other in one sequence see the same cells in the same lanes, so they read each block once.
#include "attention_block.hpp"
#include "attention_scratch.hpp"
#include "kernel.hpp"

#ifdef PYG_ATTENTION
#    include <algorithm>

namespace pyg::kernels {
namespace {

class Attention {
  public:
    Attention(ggml_compute_params * params, ggml_tensor * op)
        : params_(params), op_(op), q_(op->src[0]), k_(op->src[1]), v_(op->src[2]), mask_(op->src[3]),
          positions_(positions_of(k_)), n_heads_(q_->ne[2] / k_->ne[2]), scratch_(op, scratch_memory(params, op)) {
        float bias;
        std::memcpy(&scores_.scale, op->op_params, sizeof(float));
        std::memcpy(&bias, op->op_params + 1, sizeof(float));
        std::memcpy(&scores_.softcap, op->op_params + 2, sizeof(float));
        if (scores_.softcap != 0) {
            scores_.scale /= scores_.softcap;
        }
        bias_ = bias;
        std::memset(scratch_.zeros, 0, k_->ne[0] * sizeof(float));
        std::memset(scratch_.mask, 0, BLOCK * sizeof(float));
    }

    static size_t work_size(int n_threads, const ggml_tensor * op) {
        return Scratch(op, nullptr).size * n_threads + ALIGNMENT;
    }

    // Computes what this thread can get hold of: heads of keys of some rows at a time.
    void compute() {
        const int64_t n_tokens = q_->ne[1], n_groups = k_->ne[2], n_streams = q_->ne[3];
        const int64_t wanted  = n_tokens * n_groups * n_streams / (4 * params_->nth);
        const int64_t n_rows  = std::clamp<int64_t>(wanted, 1, n_rows_at_once(n_heads_));
        const int64_t n_tiles = (n_tokens + n_rows - 1) / n_rows;
        if (params_->ith == 0) {
            ggml_threadpool_chunk_set(params_->threadpool, params_->nth);
        }
        ggml_barrier(params_->threadpool);
        for (int64_t item = params_->ith; item < n_tiles * n_groups * n_streams;
             item         = ggml_threadpool_chunk_add(params_->threadpool, 1)) {
            // The last rows see most, so they come first.
            const int64_t tile = n_tiles - 1 - item / (n_groups * n_streams);
            group_             = item % n_groups;
            stream_            = item / n_groups % n_streams;
            attend(tile * n_rows, std::min((tile + 1) * n_rows, n_tokens));
        }
    }

  private:
    static char * scratch_memory(const ggml_compute_params * params, const ggml_tensor * op) {
        const auto start = (reinterpret_cast<uintptr_t>(params->wdata) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        return reinterpret_cast<char *>(start) + Scratch(op, nullptr).size * params->ith;
    }

    const uint16_t * mask_of(int64_t row) const {
        return reinterpret_cast<const uint16_t *>(static_cast<const char *>(mask_->data) + row * mask_->nb[1] +
                                                  stream_ % mask_->ne[3] * mask_->nb[3]);
    }

    // Lists the cells that a row sees, in order.
    int64_t list(int64_t row) {
        const int64_t n_cells = k_->ne[1];
        int64_t       n       = 0;
        if (!mask_) {
            for (; n < n_cells; n++) {
                scratch_.listed[n] = static_cast<int32_t>(n);
            }
        } else {
            const uint16_t * const mask   = mask_of(row);
            const __m256i          hidden = _mm256_set1_epi16(static_cast<int16_t>(HIDDEN));
            for (int64_t i = 0; i < n_cells; i += 16) {
                uint32_t seen = 0;
                if (i + 16 <= n_cells) {
                    const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(mask + i));
                    seen               = ~static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi16(part, hidden)));
                    seen &= 0x55555555;
                } else {
                    for (int64_t j = i; j < n_cells; j++) {
                        seen |= static_cast<uint32_t>(mask[j] != HIDDEN) << (2 * (j - i));
                    }
                }
                for (; seen; seen &= seen - 1) {
                    scratch_.listed[n++] = static_cast<int32_t>(i + __builtin_ctz(seen) / 2);
                }
            }
        }
        return n;
    }

    // Puts the listed cells in order, and returns the position of the first.
    int64_t sort(int64_t n) {
        if (!positions_ || n == 0) {
            return 0;
        }
        positions_->keys(positions_->cache, scratch_.listed, n, scratch_.places);
        if (!std::is_sorted(scratch_.places, scratch_.places + n)) {
            for (int64_t i = 0; i < n; i++) {
                scratch_.placed[i] = {scratch_.places[i], scratch_.listed[i]};
            }
            std::sort(scratch_.placed, scratch_.placed + n, [](const Placed & a, const Placed & b) {
                return a.key != b.key ? a.key < b.key : a.cell < b.cell;
            });
            for (int64_t i = 0; i < n; i++) {
                scratch_.listed[i] = scratch_.placed[i].cell;
            }
            scratch_.places[0] = scratch_.placed[0].key;
        }
        return std::max<int64_t>(scratch_.places[0] >> 32, 0);
    }

    // Adds a row to those at hand if what it sees can be part of their list.
    bool join(Rows & rows, int64_t low, int64_t n) {
        const int64_t high = low + n;
        if (rows.first == rows.end || n == 0) {
            if (rows.first != rows.end) {
                return false;
            }
            std::copy_n(scratch_.listed, n, scratch_.cells);
            rows.low  = low;
            rows.high = high;
        } else {
            if (low < rows.low || low > rows.high || high - rows.low > k_->ne[1]) {
                return false;
            }
            const int64_t n_shared = std::min(high, rows.high) - low;
            if (!std::equal(scratch_.listed, scratch_.listed + n_shared, scratch_.cells + (low - rows.low))) {
                return false;
            }
            std::copy(scratch_.listed + n_shared, scratch_.listed + n, scratch_.cells + (low - rows.low) + n_shared);
            rows.high = std::max(rows.high, high);
        }
        rows.lows[rows.end - rows.first]  = low;
        rows.highs[rows.end - rows.first] = high;
        rows.end++;
        return true;
    }

    void attend(int64_t first, int64_t end) {
        Rows rows{first, first, 0, 0, {}, {}};
        for (int64_t row = first; row < end; row++) {
            const int64_t n   = list(row);
            const int64_t low = sort(n);
            if (!join(rows, low, n)) {
                attend(rows);
                rows = {row, row, 0, 0, {}, {}};
                join(rows, low, n);
            }
        }
        attend(rows);
    }

    void attend(const Rows & rows) {
        begin(rows);
        for (int64_t block = rows.low / BLOCK * BLOCK; block < rows.high; block += BLOCK) {
            const int64_t low = std::max(block, rows.low), high = std::min(block + BLOCK, rows.high);
            gather_keys(scratch_.cells - rows.low, block, low, high);
            gather_values(scratch_.cells - rows.low, block, low, high);
            attend_block(rows, block);
        }
        end(rows);
    }

    float slope(int64_t head) const {
        if (bias_ <= 0) {
            return 1;
        }
        const int64_t n_log2 = int64_t(1) << static_cast<int>(std::floor(std::log2(q_->ne[2])));
        const float   even   = std::pow(2.0f, -bias_ / n_log2);
        const float   odd    = std::pow(2.0f, -bias_ / 2.0f / n_log2);
        return head < n_log2 ? std::pow(even, head + 1) : std::pow(odd, 2 * (head - n_log2) + 1);
    }

    void begin(const Rows & rows) {
        const int64_t n_values = v_->ne[0];
        Query *       query    = scratch_.states;
        for (int64_t row = rows.first; row < rows.end; row++) {
            for (int64_t h = 0; h < n_heads_; h++, query++) {
                const int64_t head = group_ * n_heads_ + h;
                query->q     = reinterpret_cast<const float *>(static_cast<const char *>(q_->data) + row * q_->nb[1] +
                                                               head * q_->nb[2] + stream_ * q_->nb[3]);
                query->sum   = scratch_.queries + (query - scratch_.states) * n_values;
                query->total = 0;
                query->most  = -INFINITY;
                query->slope = slope(head);
                query->row   = static_cast<int32_t>(row - rows.first);
                std::fill_n(query->sum, n_values, 0.0f);
            }
        }
    }

    const char * cell_of(const ggml_tensor * cache, int64_t cell) const {
        return static_cast<const char *>(cache->data) + cell * cache->nb[1] + group_ * cache->nb[2] +
               stream_ * cache->nb[3];
    }

    // Lanes of a block that have no cell get zeros, which no query sees.
    void gather_keys(const int32_t * cells, int64_t block, int64_t low, int64_t high) {
        const int64_t      n        = k_->ne[0];
        const auto         to_float = ggml_get_type_traits(k_->type)->to_float;
        const char *       found[LANES];
        const char * const zeros = scratch_.zeros;
        for (int64_t first = block; first < block + BLOCK; first += LANES) {
            for (int64_t i = 0; i < LANES; i++) {
                found[i] = first + i >= low && first + i < high ? cell_of(k_, cells[first + i]) : zeros;
                if (k_->type != GGML_TYPE_F16 && k_->type != GGML_TYPE_F32 && found[i] != zeros) {
                    to_float(found[i], scratch_.rows + i * n, n);
                    found[i] = reinterpret_cast<const char *>(scratch_.rows + i * n);
                }
            }
            if (k_->type == GGML_TYPE_F16) {
                columns<ggml_fp16_t>(found, first - block);
            } else {
                columns<float>(found, first - block);
            }
        }
    }

    template <typename T>
    void columns(const char * const (&found)[LANES], int64_t lane) {
        const T * rows[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            rows[i] = reinterpret_cast<const T *>(found[i]);
        }
        write_columns(rows, k_->ne[0], scratch_.keys + lane);
    }

    void gather_values(const int32_t * cells, int64_t block, int64_t low, int64_t high) {
        const int64_t n        = v_->ne[0];
        const auto    to_float = ggml_get_type_traits(v_->type)->to_float;
        for (int64_t i = low; i < high; i++) {
            const char * const from = cell_of(v_, cells[i]);
            float * const      to   = scratch_.values + (i - block) * n;
            if (v_->type == GGML_TYPE_F32) {
                std::memcpy(to, from, n * sizeof(float));
            } else if (v_->type == GGML_TYPE_F16) {
                for (int64_t d = 0; d < n; d += LANES) {
                    _mm256_storeu_ps(to + d, load(reinterpret_cast<const ggml_fp16_t *>(from) + d));
                }
            } else {
                to_float(from, to, n);
            }
        }
    }

    void gather_mask(int64_t row, const int32_t * cells, int64_t low, int64_t high, int64_t block) {
        if (mask_) {
            const uint16_t * const mask = mask_of(row);
            for (int64_t i = low; i < high; i++) {
                scratch_.mask[i - block] = _cvtsh_ss(mask[cells[i]]);
            }
        }
    }

    void attend_block(const Rows & rows, int64_t block) {
        Query * seeing[MAX_QUERIES];
        int64_t n = 0;
        for (int64_t i = 0; i < rows.end - rows.first; i++) {
            const int64_t low = std::max(block, rows.lows[i]), high = std::min(block + BLOCK, rows.highs[i]);
            for (int64_t h = 0; h < n_heads_ && low < high; h++) {
                Query & query = scratch_.states[i * n_heads_ + h];
                query.low     = static_cast<int32_t>(low - block);
                query.high    = static_cast<int32_t>(high - block);
                seeing[n++]   = &query;
            }
        }
        for (int64_t i = 0; i < n; i += 2) {
            i + 1 < n ? score<2>(seeing + i, scratch_.keys, k_->ne[0]) : score<1>(seeing + i, scratch_.keys, k_->ne[0]);
        }
        int64_t n_left = 0;
        for (int64_t i = 0; i < n; i++) {
            Query & query = *seeing[i];
            if (i == 0 || seeing[i - 1]->row != query.row) {
                gather_mask(rows.first + query.row, scratch_.cells - rows.low, block + query.low, block + query.high,
                            block);
            }
            if (weigh(query, scores_, scratch_.mask, v_->ne[0])) {
                left_[n_left++] = &query;
            }
        }
        add(n_left);
    }

    void add(int64_t n) {
        for (int64_t i = 0; i < n;) {
            if (i + 1 < n && left_[i]->low == left_[i + 1]->low && left_[i]->high == left_[i + 1]->high) {
                add_values<2>(left_ + i, scratch_.values, v_->ne[0]);
                i += 2;
            } else {
                add_values<1>(left_ + i, scratch_.values, v_->ne[0]);
                i++;
            }
        }
    }

    void end(const Rows & rows) {
        const ggml_tensor * const sinks = op_->src[4];
        for (int64_t i = 0; i < (rows.end - rows.first) * n_heads_; i++) {
            Query &       query = scratch_.states[i];
            const int64_t row = rows.first + query.row, head = group_ * n_heads_ + i % n_heads_;
            if (sinks) {
                const float sink = static_cast<const float *>(sinks->data)[head];
                raise(query, sink, v_->ne[0]);
                query.total += exp_of(sink - query.most);
            }
            scale_by(query.sum, v_->ne[0], query.total == 0 ? 0.0f : 1.0f / query.total);
            const int64_t place = (stream_ * op_->ne[2] + row) * op_->ne[1] + head;
            std::memcpy(static_cast<char *>(op_->data) + place * op_->nb[1], query.sum, v_->ne[0] * sizeof(float));
        }
    }

    ggml_compute_params * params_;
    ggml_tensor *         op_;
    const ggml_tensor *   q_, *k_, *v_, *mask_;
    const pyg_positions * positions_;
    int64_t               n_heads_;  // for each head of keys
    Scratch               scratch_;
    Scores                scores_ = {};
    float                 bias_   = 0;
    int64_t               group_ = 0, stream_ = 0;
    Query *               left_[MAX_QUERIES];
};

bool is_readable(const ggml_tensor * rows) {
    return rows->nb[0] == ggml_type_size(rows->type) && rows->ne[0] % LANES == 0 &&
           (rows->type == GGML_TYPE_F32 || ggml_get_type_traits(rows->type)->to_float);
}

bool is_covered(const ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && is_readable(k) && is_readable(v) &&
           k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] && q->ne[2] % k->ne[2] == 0 &&
           q->ne[2] / k->ne[2] <= MAX_QUERIES && k->ne[1] == v->ne[1] && k->ne[1] < INT32_MAX &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->ne[2] == 1 && mask->nb[0] == sizeof(ggml_fp16_t)));
}

class AttentionKernel : public Kernel {
  public:
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size = Attention::work_size(n_threads, op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        Attention(params, op).compute();
        return true;
    }
};

}  // namespace

Kernel * attention_for(const ggml_tensor * op) {
    static AttentionKernel kernel;
    return is_covered(op) ? &kernel : nullptr;
}

}  // namespace pyg::kernels
#else
namespace pyg::kernels {

Kernel * attention_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels
#endif
