// How a product whose weights stay as they are in the file divides into pieces of work.
#pragma once

#include "kernels/backend/expert_rows.hpp"
#include "kernels/backend/kernel.hpp"
#include "kernels/gemm/work_item.hpp"

namespace pyg::kernels {

// All pieces of a product. Those that share weights follow one another, so that the weights are in a cache.
//
// In plain products ggml repeats a matrix for several of the others in the third and fourth dimension: columns of all
// these meet the same weights. In products by expert, columns are choices, sorted by expert in the workspace.
class Pieces {
  public:
    static size_t workspace_bytes(const ggml_tensor * op) {
        return (ChosenExperts::count(op) + (is_by_expert(op) ? ggml_nrows(op) : 0)) * sizeof(int64_t);
    }

    // Sorts the choices: for one thread to do before the others go on.
    static void prepare(const ggml_tensor * op, void * workspace) {
        if (is_by_expert(op)) {
            const auto      numbers = static_cast<int64_t *>(workspace);
            int64_t * const choices = numbers + ChosenExperts::count(op);
            sort_choices(op, {op, numbers}, [&](int64_t place, int64_t choice) { choices[place] = choice; });
        }
    }

    // `columns` has the shape of the activations; its strides say where they lie. Pieces of many rows fetch columns
    // less often, and may be too few for many threads.
    Pieces(const ggml_tensor * op, int n_threads, const char * columns, const size_t * strides, void * workspace)
        : op_(op), weights_(op->src[0]), columns_(columns), strides_(strides),
          chosen_(op, static_cast<int64_t *>(workspace)), choices_(chosen_.n + ChosenExperts::count(op)),
          n_matrices_(is_by_expert(op) ? *chosen_.n : weights_->ne[2] * weights_->ne[3]),
          piece_rows_(weights_->ne[1] < 8 * n_threads * PIECE_ROWS ? PIECE_ROWS : 2 * PIECE_ROWS),
          of_rows_(n_of(weights_->ne[1], piece_rows_)), of_columns_(n_of(most_columns(), PIECE_COLUMNS)) {}

    // Some may be without columns.
    int64_t size() const { return n_matrices_ * of_rows_ * of_columns_; }

    void get(int64_t index, Piece & piece) const {
        const int64_t row = index / of_columns_ % of_rows_ * piece_rows_;
        get(index / (of_rows_ * of_columns_), row, piece_rows_, index % of_columns_, piece);
    }

    // Matrices that have columns, and the sets of PIECE_COLUMNS that one has.
    int64_t n_matrices() const { return n_matrices_; }
    int64_t n_sets(int64_t which) const { return n_of(n_columns(which), PIECE_COLUMNS); }

    // Columns that come before a set's: of matrices before, and of the same one.
    int64_t columns_before(int64_t which, int64_t set) const {
        const int64_t of_others = is_by_expert(op_) ? chosen_.first[which] : which * n_columns(which);
        return of_others + set * PIECE_COLUMNS;
    }

    // Rows from `row` on, up to `n_rows` of them, and the columns of a set.
    void get(int64_t which, int64_t row, int64_t n_rows, int64_t set, Piece & piece) const {
        const int64_t column = set * PIECE_COLUMNS;
        piece.n_rows         = std::min(n_rows, weights_->ne[1] - row);
        piece.n_columns      = std::clamp<int64_t>(n_columns(which) - column, 0, PIECE_COLUMNS);
        piece.weights        = matrix(is_by_expert(op_) ? chosen_.expert[which] : which) + row * weights_->nb[1];
        for (int64_t c = 0; c < piece.n_columns; ++c) {
            if (is_by_expert(op_)) {
                set_choice(piece, c, choices_[chosen_.first[which] + column + c]);
            } else {
                set_column(piece, c, which, column + c);
            }
            piece.results[c] += row;
        }
    }

  private:
    static bool    is_by_expert(const ggml_tensor * op) { return op->op == GGML_OP_MUL_MAT_ID; }
    static int64_t n_of(int64_t n, int64_t in_a_piece) { return (n + in_a_piece - 1) / in_a_piece; }

    int64_t repeats(int dim) const { return op_->ne[dim] / weights_->ne[dim]; }

    int64_t n_columns(int64_t which) const {
        return is_by_expert(op_) ? chosen_.first[which + 1] - chosen_.first[which]
                                 : op_->ne[1] * repeats(2) * repeats(3);
    }

    int64_t most_columns() const {
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

    void set_choice(Piece & piece, int64_t c, int64_t choice) const {
        const RowOfChoice row = row_of(op_, choice);
        piece.columns[c]      = columns_ + row.i1 * strides_[1] + row.i2 * strides_[2];
        piece.results[c]      = result(choice % op_->ne[1], row.i2, 0);
    }

    void set_column(Piece & piece, int64_t c, int64_t matrix, int64_t column) const {
        const int64_t i1 = column % op_->ne[1];
        const int64_t i2 = column / op_->ne[1] % repeats(2) + matrix % weights_->ne[2] * repeats(2);
        const int64_t i3 = column / op_->ne[1] / repeats(2) + matrix / weights_->ne[2] * repeats(3);
        piece.columns[c] = columns_ + i1 * strides_[1] + i2 * strides_[2] + i3 * strides_[3];
        piece.results[c] = result(i1, i2, i3);
    }

    float * result(int64_t i1, int64_t i2, int64_t i3) const {
        char * const out = static_cast<char *>(op_->data);
        return reinterpret_cast<float *>(out + i1 * op_->nb[1] + i2 * op_->nb[2] + i3 * op_->nb[3]);
    }

    const ggml_tensor *const op_, *const weights_;
    const char * const    columns_;
    const size_t * const  strides_;
    const ChosenExperts   chosen_;   // by expert
    const int64_t * const choices_;  // [place] by expert
    const int64_t         n_matrices_, piece_rows_, of_rows_, of_columns_;
};

// Before any work: by each thread. Ends where all threads have met.
inline void start_work(const ggml_compute_params * params, const ggml_tensor * op, void * workspace) {
    if (params->ith == 0) {
        Pieces::prepare(op, workspace);
        ggml_threadpool_chunk_set(params->threadpool, params->nth);  // the first piece of each thread is its own number
    }
    ggml_barrier(params->threadpool);
}

// Computes all pieces on the threads of `params`, each thread taking the next piece when it is done with one.
template <typename Compute>
void share_work(const ggml_compute_params * params, const Pieces & all, const Compute & compute) {
    Piece piece;
    for (int64_t next = params->ith; next < all.size(); next = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        all.get(next, piece);
        compute(piece);
    }
}

}  // namespace pyg::kernels
