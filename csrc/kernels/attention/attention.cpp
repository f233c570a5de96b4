// FLASH_ATTN_EXT: attention of each row to the cells of its own sequence, in order of position.
//
// First all threads list the cells that each row sees (visible_cells.hpp). Then they compute work items: rows that
// share cells, for the queries of one KV head, chunk by chunk (attention_micro_kernel.hpp). Chunks start at multiples
// of their length, counted in cell indices, so they do not depend on the rest of the batch. With too few items for all
// threads, chunks are divided too, and their partial results are merged by the same arithmetic.
#include "kernels/backend/kernel.hpp"
#include "kernels/simd/vector.hpp"

#ifdef PYG_FLOATS8
#    include "kernels/attention/attention_work_item.hpp"

namespace pyg::kernels {
namespace {

class Attention {
  public:
    Attention(ggml_compute_params * params, ggml_tensor * op)
        : params_(params), sizes_(op), shared_(sizes_, aligned(params->wdata)),
          scratch_(sizes_, aligned(params->wdata) + shared_.size + params->ith * Scratch(sizes_, nullptr).size),
          lister_(op, sizes_, shared_, scratch_), work_(op, sizes_, shared_, scratch_, lister_) {}

    static size_t work_size(int n_threads, const ggml_tensor * op) {
        const Sizes sizes(op);
        return Shared(sizes, nullptr).size + Scratch(sizes, nullptr).size * n_threads + ALIGNMENT;
    }

    void compute() {
        for (int64_t first = 0; first < sizes_.n_rows; first += sizes_.n_listed) {
            if (first > 0) {
                ggml_barrier(params_->threadpool);
            }
            compute(first, std::min(sizes_.n_listed, sizes_.n_rows - first));
        }
    }

  private:
    // Compute `n` rows from `first` on, whose cells are listed at once.
    void compute(int64_t first, int64_t n) {
        if (params_->ith == 0) {
            ggml_threadpool_chunk_set(params_->threadpool, params_->nth);
        }
        n_rows_                 = n;
        const auto [begin, end] = share_of(params_, n);
        lister_.list(first + begin, first + end, begin, n_joint());
        ggml_barrier(params_->threadpool);
        divide();
        take_items();
        if (split_) {
            ggml_barrier(params_->threadpool);
            merge_partials();
        }
    }

    // Number of rows computed together; fewer where threads would otherwise be idle.
    int64_t n_joint() const {
        const int64_t most = sizes_.group_rows();
        return params_->nth == 1 ? most : std::clamp<int64_t>(n_rows_ * sizes_.n_sets / (4 * params_->nth), 1, most);
    }

    // Divide the work by chunks, if the partial results fit, and by sets of heads. Heads of the same cells are adjacent
    // in memory, so few queries read them together.
    void divide() {
        int64_t n_rows = 1, n_lists = 0, n_chunks = 0, n_parts = 0;
        for (int64_t i = 0; i < n_rows_; ++i) {
            const RowGroup & rows = shared_.rows[i];
            const int64_t    n    = rows.end - rows.first;
            n_rows                = std::max(n_rows, n);
            n_lists += n > 0;
            n_chunks += n > 0 ? rows.n_chunks() : 0;
            n_parts += n * rows.n_chunks() * sizes_.n_heads;
        }
        const int64_t n_wanted = params_->nth > 1 ? 4 * params_->nth : 1;
        n_sets_                = std::clamp<int64_t>(MAX_QUERIES / (n_rows * sizes_.n_joint), 1, sizes_.n_sets);
        split_                 = n_lists * divided(sizes_.n_sets, n_sets_) < n_wanted && n_parts <= sizes_.max_partials;
        const int64_t n_items  = split_ ? n_chunks : n_lists;
        while (n_sets_ > 1 && n_items * divided(sizes_.n_sets, n_sets_) < n_wanted) {
            n_sets_ = divided(n_sets_, 2);
        }
    }

    // Compute items until none is left, the last rows first: they see the most cells.
    void take_items() {
        int64_t next = params_->ith, n_before = 0, part = 0;
        for (int64_t i = n_rows_ - 1; i >= 0; --i) {
            const RowGroup & rows = shared_.rows[i];
            if (rows.end == rows.first) {
                continue;
            }
            const int64_t n_items = divided(sizes_.n_sets, n_sets_) * (split_ ? rows.n_chunks() : 1);
            for (; next < n_before + n_items; next = ggml_threadpool_chunk_add(params_->threadpool, 1)) {
                work_.attend(item(rows, next - n_before, part));
            }
            n_before += n_items;
            part += (rows.end - rows.first) * rows.n_chunks() * sizes_.n_heads;
        }
    }

    AttentionItem item(const RowGroup & rows, int64_t index, int64_t part) const {
        const int64_t n_chunks = split_ ? rows.n_chunks() : 1, chunk = index % n_chunks;
        AttentionItem item;
        item.rows      = &rows;
        item.set       = index / n_chunks * n_sets_;
        item.end_set   = std::min(item.set + n_sets_, sizes_.n_sets);
        item.chunk     = rows.first_chunk() + chunk;
        item.end_chunk = split_ ? item.chunk + 1 : item.chunk + rows.n_chunks();
        item.is_all    = !split_;
        item.part      = part + chunk * (rows.end - rows.first) * sizes_.n_heads;
        return item;
    }

    // Merge the partial results of all chunks.
    void merge_partials() {
        int64_t first = 0, query = 0;
        for (int64_t i = n_rows_ - 1; i >= 0; --i) {
            const RowGroup & rows = shared_.rows[i];
            const int64_t    n    = (rows.end - rows.first) * sizes_.n_heads;
            for (int64_t j = 0; j < n; ++j, ++query) {
                if (query % params_->nth == params_->ith) {
                    merge_partials(first + j, n, rows.n_chunks(), rows.first + j / sizes_.n_heads, j % sizes_.n_heads);
                }
            }
            first += n * rows.n_chunks();
        }
    }

    void merge_partials(int64_t first, int64_t step, int64_t n_chunks, int64_t row, int64_t head) {
        SoftmaxState all{0, 0, scratch_.sums};
        all.reset(sizes_.n_values);
        for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
            float * const one = shared_.part(first + chunk * step);
            merge(all, {one[0], one[1], one + 16}, sizes_.n_values);
        }
        work_.finish(all, row, head);
    }

    ggml_compute_params * params_;
    Sizes                 sizes_;
    Shared                shared_;
    Scratch               scratch_;
    VisibleCellLister     lister_;
    AttentionWorker       work_;
    int64_t               n_rows_ = 0;      // that are listed
    int64_t               n_sets_ = 1;      // of an item
    bool                  split_  = false;  // by chunks
};

bool is_readable(const ggml_tensor * rows) {
    return rows->nb[0] == ggml_type_size(rows->type) && rows->ne[0] % Floats8::LANES == 0 &&
           (rows->type == GGML_TYPE_F32 || ggml_get_type_traits(rows->type)->to_float);
}

bool is_covered(const ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && is_readable(k) && is_readable(v) &&
           k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] && q->ne[2] % k->ne[2] == 0 &&
           k->ne[1] == v->ne[1] && k->ne[1] < INT32_MAX &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->ne[2] == 1 && mask->nb[0] == sizeof(ggml_fp16_t)));
}

}  // namespace

Kernel * attention_for(const ggml_tensor * op) {
    static Kernel kernel(Attention::work_size,
                         [](ggml_compute_params * params, ggml_tensor * op) { Attention(params, op).compute(); });
    return is_covered(op) ? &kernel : nullptr;
}

}  // namespace pyg::kernels
#else
namespace pyg::kernels {

Kernel * attention_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels
#endif
