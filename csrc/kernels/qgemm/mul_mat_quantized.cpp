// MUL_MAT and MUL_MAT_ID of packed quantised weights.
//
// All threads quantise the activations. Then each takes one share of groups (16 rows) after the other and multiplies
// them with all columns of their matrix.
#include "ggml-cpu.h"
#include "kernels/backend/expert_rows.hpp"
#include "kernels/backend/kernel.hpp"
#include "kernels/backend/work_shares.hpp"
#include "kernels/qgemm/packed_buffer.hpp"
#include "kernels/simd/vector.hpp"

#ifdef PYG_QGEMM
#    include "kernels/qgemm/instances/instances.hpp"

namespace pyg::kernels {

namespace {

// Cache blocking: columns that fit into L2 together with enough groups of weights that columns are seldom reloaded.
// With AMX, unpacking takes a larger part of the time.
struct CacheBlocking {
    int columns = 64;
    int groups  = 4;
};
constexpr int MAX_BLOCKED_COLUMNS = 128;

CacheBlocking cache_blocking() {
#    ifdef PYG_AMX
    if (amx::is_available()) {
        return {MAX_BLOCKED_COLUMNS, 16};
    }
#    endif
    return {};
}

// A node's product: its quantised activations, and the columns of each matrix. Rows of activations are numbered over
// all dimensions; with experts, a column is one choice of an expert, and several may share a row of activations.
template <class Type>
class QuantizedMatMul {
  public:
    // `workspace` has size() bytes.
    QuantizedMatMul(const ggml_tensor * op, void * workspace)
        : op_(op), weights_(op->src[0]), x_(op->src[1]), k_(x_->ne[0]), n_rows_(ggml_nrows(x_)),
          n_columns_(ggml_nrows(op)), quantized_(reinterpret_cast<QuantizedColumnFor<Type> *>(aligned(workspace))),
          results_(reinterpret_cast<float **>(quantized_ + n_rows_ * n_tiles() + PADDING_COLUMNS)),
          experts_(op, reinterpret_cast<int64_t *>(results_ + n_columns_)),
          rows_(reinterpret_cast<int32_t *>(experts_.n + ActiveExperts::count(op))) {}

    static size_t size(int, const ggml_tensor * op) {
        char * const          somewhere = reinterpret_cast<char *>(ALIGNMENT);
        const QuantizedMatMul product(op, somewhere);
        return reinterpret_cast<char *>(product.rows_ + product.n_columns_) - somewhere + ALIGNMENT;
    }

    // Quantise this thread's part of the tiles of all rows.
    void quantize_activations(const ggml_compute_params * params) const {
        const int64_t n         = n_rows_ * n_tiles();
        const auto [begin, end] = share_of(params, n);
        for (int64_t i = begin; i < end; ++i) {
            const int64_t row = i / n_tiles(), tile = i % n_tiles();
            const int     n_values = static_cast<int>(std::min<int64_t>(TILE_K, k_ - tile * TILE_K));
            quantize_column<Type>(row_at(x_, row) + tile * TILE_K, n_values, quantized_[tile * n_rows_ + row]);
        }
        if (params->ith == 0) {
            std::memset(static_cast<void *>(quantized_ + n), 0, PADDING_COLUMNS * sizeof(*quantized_));
        }
    }

    // List the columns, ordered by matrix.
    void list_columns() const {
        if (op_->op == GGML_OP_MUL_MAT) {
            for (int64_t i = 0; i < n_columns_; ++i) {
                set_column(i, i, i);
            }
            *experts_.n        = 1;
            experts_.expert[0] = 0;
            experts_.first[0]  = 0;
            experts_.first[1]  = n_columns_;
        } else {
            group_by_expert(op_, experts_, [&](int64_t place, int64_t choice) {
                const ActivationRow row = row_of(op_, choice);
                set_column(place, row.i2 * x_->ne[1] + row.i1, choice);
            });
        }
    }

    // Multiply shares of groups until none is left.
    void multiply(const ggml_compute_params * params) const {
        const int64_t    n_groups = (weights_->ne[1] + GROUP_ROWS - 1) / GROUP_ROWS;
        const WorkShares shares(n_groups * *experts_.n, params->nth);
        for (int64_t i = params->ith; i < shares.size(); i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
            const int64_t end = shares.begin(i + 1);
            for (int64_t g = shares.begin(i); g < end;) {
                const int64_t first = g % n_groups, n = std::min(n_groups - first, end - g);
                multiply_row_groups(g / n_groups, first, first + n);
                g += n;
            }
        }
#    ifdef PYG_AMX
        amx::release();
#    endif
    }

  private:
    static_assert(alignof(QuantizedColumnFor<Type>) == ALIGNMENT);

    int64_t n_tiles() const { return (k_ + TILE_K - 1) / TILE_K; }

    void set_column(int64_t column, int64_t row, int64_t result) const {
        rows_[column]    = static_cast<int32_t>(row);
        results_[column] = reinterpret_cast<float *>(static_cast<char *>(op_->data) + result * op_->nb[1]);
    }

    // Multiply groups [begin, end) of a matrix with all its columns, in cache blocks.
    void multiply_row_groups(int64_t which, int64_t begin, int64_t end) const {
        const CacheBlocking blocking = cache_blocking();
        for (int64_t g = begin; g < end; g += blocking.groups) {
            const int64_t end_of_groups = std::min(g + blocking.groups, end);
            for (int64_t c = experts_.first[which]; c < experts_.first[which + 1]; c += blocking.columns) {
                multiply_columns(which, g, end_of_groups, c,
                                 std::min<int64_t>(blocking.columns, experts_.first[which + 1] - c));
            }
        }
    }

    // Multiply groups with columns [c, c + n).
    void multiply_columns(int64_t which, int64_t begin, int64_t end, int64_t c, int n) const {
        const auto        data        = static_cast<const uint8_t *>(weights_->data);
        const auto        weights     = data + experts_.expert[which] * weights_->nb[2];
        const size_t      group_bytes = GROUP_ROWS * weights_->nb[1];
        alignas(64) float results[MAX_BLOCKED_COLUMNS][GROUP_ROWS];
        for (int64_t g = begin; g < end; ++g) {
            prefetch_results(c, n, g);
            multiply_row_group<Type>(weights + g * group_bytes, k_, quantized_, n_rows_, rows_ + c, n, results);
            const int64_t n_rows = std::min<int64_t>(GROUP_ROWS, weights_->ne[1] - g * GROUP_ROWS);
            for (int i = 0; i < n; ++i) {
                copy_rows(results[i], n_rows, results_[c + i] + g * GROUP_ROWS);
            }
        }
    }

    // Prefetch output rows into L2: in L1, lines that are a power of two apart evict each other. A prefetch for writing
    // would go to L1, so this one is for reading.
    void prefetch_results([[maybe_unused]] int64_t c, [[maybe_unused]] int n, [[maybe_unused]] int64_t group) const {
#    if defined(__GNUC__)
        for (int i = 0; i < n; ++i) {
            __builtin_prefetch(results_[c + i] + group * GROUP_ROWS, 0, 2);
        }
#    endif
    }

    // Copies of a constant size need no call.
    static void copy_rows(const float (&from)[GROUP_ROWS], int64_t n, float * to) {
        if (n == GROUP_ROWS) {
            std::memcpy(to, from, sizeof(from));
        } else {
            std::memcpy(to, from, n * sizeof(float));
        }
    }

    const ggml_tensor *const op_, *const weights_, *const x_;
    const int64_t                    k_, n_rows_, n_columns_;
    QuantizedColumnFor<Type> * const quantized_;  // [tile][row of activations]
    float ** const                   results_;    // [column] output of its first row
    const ActiveExperts              experts_;    // and their columns; a plain product has one matrix
    int32_t * const                  rows_;       // [column] row of activations
};

template <class Type>
void compute(ggml_compute_params * params, ggml_tensor * op) {
    const QuantizedMatMul<Type> product(op, params->wdata);
    product.quantize_activations(params);
    if (params->ith == 0) {
        product.list_columns();
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    product.multiply(params);
}

Kernel * kernel_of(ggml_type type) {
    switch (type) {
#    define PYG_WEIGHT_TYPE(NAME, UNIT, ...)                                                                           \
    case GGML_TYPE_##NAME: {                                                                                           \
        static Kernel kernel(QuantizedMatMul<NAME>::size, compute<NAME>);                                              \
        return &kernel;                                                                                                \
    }
#    include "kernels/qgemm/types.def"
    default:
        return nullptr;
    }
}

}  // namespace

// The last group of a single matrix may be incomplete; the buffer has space for it.
bool can_pack(const ggml_tensor * weights) {
    return kernel_of(weights->type) && weights->ne[0] % ggml_blck_size(weights->type) == 0 && weights->ne[3] == 1 &&
           (weights->ne[1] % GROUP_ROWS == 0 || weights->ne[2] == 1) && ggml_is_contiguous(weights);
}

Kernel * packed_mul_mat_for(const ggml_tensor * op) {
    return is_packed(op->src[0]) ? kernel_of(op->src[0]->type) : nullptr;
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

bool can_pack(const ggml_tensor *) { return false; }

Kernel * packed_mul_mat_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels

#endif
