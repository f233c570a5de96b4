// MUL_MAT and MUL_MAT_ID of BF16 weights with AMX. The weights keep their layout in the file.
//
// All threads split the activations into sums of BF16 numbers. Then each takes one block after the other: some rows of
// a matrix and some of its columns.
#include "kernels/gemm/kernel_selection.hpp"
#include "kernels/simd/vector.hpp"

#if defined(PYG_AMX) && defined(PYG_FLOATS8)
#    include "kernels/gemm/bf16_amx_micro_kernel.hpp"
#    include "kernels/gemm/work_partition.hpp"

namespace pyg::kernels {
namespace {

// The workspace holds the work partition, the packed columns and each thread's scratch memory.
class Bf16MatMul {
  public:
    Bf16MatMul(const ggml_compute_params * params, const ggml_tensor * op)
        : params_(params), op_(op), packed_(aligned(params->wdata) + partition_bytes(op)),
          scratch_(packed_ + packed_bytes(op) + params->ith * scratch_bytes(op)) {}

    static size_t size(int n_threads, const ggml_tensor * op) {
        return ALIGNMENT + partition_bytes(op) + packed_bytes(op) + n_threads * scratch_bytes(op);
    }

    void compute() const {
        char * const              partition = aligned(params_->wdata);
        const ggml_tensor * const x         = op_->src[1];
        start_work(params_, op_, partition);
        const WorkPartition items(op_, params_->nth, static_cast<const char *>(x->data), x->nb, partition);
        pack_columns(items);
        ggml_barrier(params_->threadpool);
        multiply(items);
        amx::release();
    }

  private:
    static int64_t n_steps(const ggml_tensor * op) { return op->src[0]->ne[0] / BF16_STEP; }
    static size_t  partition_bytes(const ggml_tensor * op) {
        return GGML_PAD(WorkPartition::workspace_bytes(op), ALIGNMENT);
    }
    static size_t packed_bytes(const ggml_tensor * op) {
        return ggml_nrows(op) * Bf16Columns::column_bytes(n_steps(op));
    }
    static size_t scratch_bytes(const ggml_tensor * op) {
        return Bf16Block::bytes(op->src[0]->ne[1], (ggml_nrows(op) + ITEM_COLUMNS - 1) / ITEM_COLUMNS);
    }

    void get(const WorkPartition & items, int64_t which, int64_t row, int64_t n_rows, int64_t set, WorkItem & item,
             Bf16Columns (&halves)[2]) const {
        items.get(which, row, n_rows, set, item);
        const int64_t n      = n_steps(op_);
        char * const  packed = packed_ + items.columns_before(which, set) * Bf16Columns::column_bytes(n);
        halves[0]            = {item, 0, n, packed};
        halves[1]            = {item, 1, n, packed};
    }

    // Pack this thread's steps of all columns.
    void pack_columns(const WorkPartition & items) const {
        const auto [begin, end] = share_of(params_, n_steps(op_));
        WorkItem    item;
        Bf16Columns halves[2];
        for (int64_t which = 0; begin < end && which < items.n_matrices(); ++which) {
            for (int64_t set = 0; set < items.n_sets(which); ++set) {
                get(items, which, 0, 1, set, item, halves);
                kernels::pack_columns(item, halves[0], begin, end);
                kernels::pack_columns(item, halves[1], begin, end);
            }
        }
    }

    // About four blocks per thread.
    void multiply(const WorkPartition & items) const {
        const int64_t n_rows          = op_->src[0]->ne[1];
        const int64_t activation_type = GGML_PAD(n_rows / (4 * params_->nth), 2 * BF16_TILE_ROWS);
        const int64_t of_block        = std::clamp(activation_type, 2 * BF16_TILE_ROWS, BF16_MAX_ROWS);
        const int64_t n_blocks        = (n_rows + of_block - 1) / of_block;
        const int64_t n_tasks         = items.n_matrices() * n_blocks;
        for (int64_t task = params_->ith; task < n_tasks; task = ggml_threadpool_chunk_add(params_->threadpool, 1)) {
            multiply_block(items, task / n_blocks, task % n_blocks * of_block, of_block);
        }
    }

    void multiply_block(const WorkPartition & items, int64_t which, int64_t row, int64_t n_rows) const {
        WorkItem    some[BF16_MAX_ITEMS];
        Bf16Columns columns[BF16_MAX_ITEMS][2];
        for (int64_t set = 0; set < items.n_sets(which); set += BF16_MAX_ITEMS) {
            const int64_t n = std::min(items.n_sets(which) - set, BF16_MAX_ITEMS);
            for (int64_t i = 0; i < n; ++i) {
                get(items, which, row, n_rows, set + i, some[i], columns[i]);
            }
            const Bf16Rows rows(some[0].weights, op_->src[0]->nb[1], some[0].n_rows);
            Bf16Block(rows, n_steps(op_), scratch_).multiply(some, columns, n);
        }
    }

    const ggml_compute_params * const params_;
    const ggml_tensor * const         op_;
    char *const packed_, *const scratch_;
};

}  // namespace

Kernel * bf16_mul_mat_for(const ggml_tensor * weights) {
    static Kernel products(Bf16MatMul::size,
                           [](ggml_compute_params * params, ggml_tensor * op) { Bf16MatMul(params, op).compute(); });
    const int64_t n    = weights->ne[0];
    const bool    fits = n > 0 && n % BF16_STEP == 0 && weights->ne[1] >= BF16_TILE_ROWS;
    return weights->type == GGML_TYPE_BF16 && fits && amx::multiplies_bf16() ? &products : nullptr;
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

Kernel * bf16_mul_mat_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels

#endif
