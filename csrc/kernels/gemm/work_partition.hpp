// Partition of a product into work items.
#pragma once

#include "kernels/backend/expert_rows.hpp"
#include "kernels/backend/kernel.hpp"
#include "kernels/gemm/work_item.hpp"

namespace pyg::kernels {

// All work items of a product. Items that share weights are adjacent, so that the weights stay in a cache.
//
// In MUL_MAT, ggml repeats a matrix along the third and fourth dimension: the columns of all repetitions use the same
// weights. In MUL_MAT_ID, columns are choices of experts, sorted by expert in the workspace.
class WorkPartition {
  public:
    static size_t workspace_bytes(const ggml_tensor * op) {
        return (ActiveExperts::count(op) + (is_by_expert(op) ? ggml_nrows(op) : 0)) * sizeof(int64_t);
    }

    // Sort the choices by expert; one thread does it before the others continue.
    static void prepare(const ggml_tensor * op, void * workspace) {
        if (is_by_expert(op)) {
            const auto      numbers = static_cast<int64_t *>(workspace);
            int64_t * const choices = numbers + ActiveExperts::count(op);
            group_by_expert(op, {op, numbers}, [&](int64_t place, int64_t choice) { choices[place] = choice; });
        }
    }

    // `columns` has the shape of the activations, with its own strides. Items of many rows load columns less often, but
    // may be too few for many threads.
    WorkPartition(const ggml_tensor * op, int n_threads, const char * columns, const size_t * strides, void * workspace)
        : op_(op), weights_(op->src[0]), columns_(columns), strides_(strides),
          experts_(op, static_cast<int64_t *>(workspace)), choices_(experts_.n + ActiveExperts::count(op)),
          n_matrices_(is_by_expert(op) ? *experts_.n : weights_->ne[2] * weights_->ne[3]),
          item_rows_(weights_->ne[1] < 8 * n_threads * ITEM_ROWS ? ITEM_ROWS : 2 * ITEM_ROWS),
          n_row_items_(n_of(weights_->ne[1], item_rows_)), n_column_items_(n_of(max_columns(), ITEM_COLUMNS)) {}

    // Some items may have no columns.
    int64_t size() const { return n_matrices_ * n_row_items_ * n_column_items_; }

    void get(int64_t index, WorkItem & item) const {
        const int64_t row = index / n_column_items_ % n_row_items_ * item_rows_;
        get(index / (n_row_items_ * n_column_items_), row, item_rows_, index % n_column_items_, item);
    }

    // Matrices with columns, and the sets of ITEM_COLUMNS of one.
    int64_t n_matrices() const { return n_matrices_; }
    int64_t n_sets(int64_t which) const { return n_of(n_columns(which), ITEM_COLUMNS); }

    // Number of columns before a set.
    int64_t columns_before(int64_t which, int64_t set) const {
        const int64_t of_others = is_by_expert(op_) ? experts_.first[which] : which * n_columns(which);
        return of_others + set * ITEM_COLUMNS;
    }

    // Up to `n_rows` rows from `row` on, and the columns of a set.
    void get(int64_t which, int64_t row, int64_t n_rows, int64_t set, WorkItem & item) const {
        const int64_t column = set * ITEM_COLUMNS;
        item.n_rows          = std::min(n_rows, weights_->ne[1] - row);
        item.n_columns       = std::clamp<int64_t>(n_columns(which) - column, 0, ITEM_COLUMNS);
        item.weights         = matrix(is_by_expert(op_) ? experts_.expert[which] : which) + row * weights_->nb[1];
        for (int64_t c = 0; c < item.n_columns; ++c) {
            if (is_by_expert(op_)) {
                set_choice(item, c, choices_[experts_.first[which] + column + c]);
            } else {
                set_column(item, c, which, column + c);
            }
            item.results[c] += row;
        }
    }

  private:
    static bool    is_by_expert(const ggml_tensor * op) { return op->op == GGML_OP_MUL_MAT_ID; }
    static int64_t n_of(int64_t n, int64_t per_item) { return (n + per_item - 1) / per_item; }

    int64_t repeats(int dim) const { return op_->ne[dim] / weights_->ne[dim]; }

    int64_t n_columns(int64_t which) const {
        return is_by_expert(op_) ? experts_.first[which + 1] - experts_.first[which]
                                 : op_->ne[1] * repeats(2) * repeats(3);
    }

    int64_t max_columns() const {
        int64_t most = 0;
        for (int64_t which = 0; which < n_matrices_; ++which) {
            most = std::max(most, n_columns(which));
        }
        return most;
    }

    const char * matrix(int64_t i) const {
        const char * const data = static_cast<const char *>(weights_->data);
        return data + i % weights_->ne[2] * weights_->nb[2] + i / weights_->ne[2] * weights_->nb[3];
    }

    void set_choice(WorkItem & item, int64_t c, int64_t choice) const {
        const ActivationRow row = row_of(op_, choice);
        item.columns[c]         = columns_ + row.i1 * strides_[1] + row.i2 * strides_[2];
        item.results[c]         = result(choice % op_->ne[1], row.i2, 0);
    }

    void set_column(WorkItem & item, int64_t c, int64_t matrix, int64_t column) const {
        const int64_t i1 = column % op_->ne[1];
        const int64_t i2 = column / op_->ne[1] % repeats(2) + matrix % weights_->ne[2] * repeats(2);
        const int64_t i3 = column / op_->ne[1] / repeats(2) + matrix / weights_->ne[2] * repeats(3);
        item.columns[c]  = columns_ + i1 * strides_[1] + i2 * strides_[2] + i3 * strides_[3];
        item.results[c]  = result(i1, i2, i3);
    }

    float * result(int64_t i1, int64_t i2, int64_t i3) const {
        char * const out = static_cast<char *>(op_->data);
        return reinterpret_cast<float *>(out + i1 * op_->nb[1] + i2 * op_->nb[2] + i3 * op_->nb[3]);
    }

    const ggml_tensor *const op_, *const weights_;
    const char * const    columns_;
    const size_t * const  strides_;
    const ActiveExperts   experts_;  // by expert
    const int64_t * const choices_;  // [place] by expert
    const int64_t         n_matrices_, item_rows_, n_row_items_, n_column_items_;
};

// Called by each thread before any work; ends with a barrier.
inline void start_work(const ggml_compute_params * params, const ggml_tensor * op, void * workspace) {
    if (params->ith == 0) {
        WorkPartition::prepare(op, workspace);
        ggml_threadpool_chunk_set(params->threadpool, params->nth);  // the first item of each thread is its own number
    }
    ggml_barrier(params->threadpool);
}

// Compute all items; each thread takes the next one when it has finished one.
template <typename Compute>
void share_work(const ggml_compute_params * params, const WorkPartition & all, const Compute & compute) {
    WorkItem item;
    for (int64_t next = params->ith; next < all.size(); next = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        all.get(next, item);
        compute(item);
    }
}

}  // namespace pyg::kernels
