// Products of weights of BF16 in AMX's registers. The weights stay as they are in the file.
//
// All threads write the activations down as sums of numbers of BF16. Then each takes one block after the other: some
// rows of a matrix, and some of the columns that meet it.
#include "kernels/gemm/kernel_selection.hpp"
#include "kernels/simd/floats8.hpp"
#include "kernels/simd/vector.hpp"

#if defined(PYG_AMX) && defined(PYG_FLOATS8)
#    include "kernels/gemm/bf16_amx_micro_kernel.hpp"
#    include "kernels/gemm/work_partition.hpp"

namespace pyg::kernels {
namespace {

// The workspace has what the pieces need, what is written down of each column, and scratch of each thread.
class Bf16Product {
  public:
    Bf16Product(const ggml_compute_params * params, const ggml_tensor * op)
        : params_(params), op_(op), written_(aligned(params->wdata) + places_bytes(op)),
          scratch_(written_ + written_bytes(op) + params->ith * scratch_bytes(op)) {}

    static size_t size(int n_threads, const ggml_tensor * op) {
        return ALIGNMENT + places_bytes(op) + written_bytes(op) + n_threads * scratch_bytes(op);
    }

    void compute() const {
        char * const              places = aligned(params_->wdata);
        const ggml_tensor * const x      = op_->src[1];
        start_work(params_, op_, places);
        const Pieces pieces(op_, params_->nth, static_cast<const char *>(x->data), x->nb, places);
        write_columns(pieces);
        ggml_barrier(params_->threadpool);
        multiply(pieces);
        amx::release();
    }

  private:
    static constexpr size_t ALIGNMENT = 64;

    static char * aligned(void * workspace) {
        return reinterpret_cast<char *>(GGML_PAD(reinterpret_cast<uintptr_t>(workspace), ALIGNMENT));
    }

    static int64_t n_steps(const ggml_tensor * op) { return op->src[0]->ne[0] / BF16_STEP; }
    static size_t  places_bytes(const ggml_tensor * op) { return GGML_PAD(Pieces::workspace_bytes(op), ALIGNMENT); }
    static size_t  written_bytes(const ggml_tensor * op) {
        return ggml_nrows(op) * Bf16Columns::column_bytes(n_steps(op));
    }
    static size_t scratch_bytes(const ggml_tensor * op) {
        return Bf16Block::bytes(op->src[0]->ne[1], (ggml_nrows(op) + PIECE_COLUMNS - 1) / PIECE_COLUMNS);
    }

    void get(const Pieces & pieces, int64_t which, int64_t row, int64_t n_rows, int64_t set, Piece & piece,
             Bf16Columns (&halves)[2]) const {
        pieces.get(which, row, n_rows, set, piece);
        const int64_t n       = n_steps(op_);
        char * const  written = written_ + pieces.columns_before(which, set) * Bf16Columns::column_bytes(n);
        halves[0]             = {piece, 0, n, written};
        halves[1]             = {piece, 1, n, written};
    }

    // Each thread some steps of all columns.
    void write_columns(const Pieces & pieces) const {
        const int64_t begin = n_steps(op_) * params_->ith / params_->nth;
        const int64_t end   = n_steps(op_) * (params_->ith + 1) / params_->nth;
        Piece         piece;
        Bf16Columns   halves[2];
        for (int64_t which = 0; begin < end && which < pieces.n_matrices(); ++which) {
            for (int64_t set = 0; set < pieces.n_sets(which); ++set) {
                get(pieces, which, 0, 1, set, piece, halves);
                kernels::write_columns(piece, halves[0], begin, end);
                kernels::write_columns(piece, halves[1], begin, end);
            }
        }
    }

    // Four blocks for each thread, or as many as there are.
    void multiply(const Pieces & pieces) const {
        const int64_t n_rows   = op_->src[0]->ne[1];
        const int64_t wanted   = GGML_PAD(n_rows / (4 * params_->nth), 2 * BF16_TILE_ROWS);
        const int64_t of_block = std::clamp(wanted, 2 * BF16_TILE_ROWS, BF16_MOST_ROWS);
        const int64_t n_blocks = (n_rows + of_block - 1) / of_block;
        const int64_t n_tasks  = pieces.n_matrices() * n_blocks;
        for (int64_t task = params_->ith; task < n_tasks; task = ggml_threadpool_chunk_add(params_->threadpool, 1)) {
            multiply_block(pieces, task / n_blocks, task % n_blocks * of_block, of_block);
        }
    }

    void multiply_block(const Pieces & pieces, int64_t which, int64_t row, int64_t n_rows) const {
        Piece       some[BF16_MOST_PIECES];
        Bf16Columns columns[BF16_MOST_PIECES][2];
        for (int64_t set = 0; set < pieces.n_sets(which); set += BF16_MOST_PIECES) {
            const int64_t n = std::min(pieces.n_sets(which) - set, BF16_MOST_PIECES);
            for (int64_t i = 0; i < n; ++i) {
                get(pieces, which, row, n_rows, set + i, some[i], columns[i]);
            }
            const Bf16Rows rows(some[0].weights, op_->src[0]->nb[1], some[0].n_rows);
            Bf16Block(rows, n_steps(op_), scratch_).multiply(some, columns, n);
        }
    }

    const ggml_compute_params * const params_;
    const ggml_tensor * const         op_;
    char *const written_, *const scratch_;
};

class Bf16Products : public Kernel {
  public:
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size = Bf16Product::size(n_threads, op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        Bf16Product(params, op).compute();
        return true;
    }
};

}  // namespace

Kernel * bf16_product_for(const ggml_tensor * weights) {
    static Bf16Products products;
    const int64_t       n    = weights->ne[0];
    const bool          fits = n > 0 && n % BF16_STEP == 0 && weights->ne[1] >= BF16_TILE_ROWS;
    return weights->type == GGML_TYPE_BF16 && fits && amx::multiplies_bf16() ? &products : nullptr;
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

Kernel * bf16_product_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels

#endif
