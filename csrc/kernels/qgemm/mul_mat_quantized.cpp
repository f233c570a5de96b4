// Products of weights that lie in tiles with the activations of a step, plain and by expert.
//
// All threads round the activations to integers. Then each takes a share of groups of 16 rows after the other and
// multiplies them with all columns that the weights are for.
#include "ggml-cpu.h"
#include "kernels/backend/expert_rows.hpp"
#include "kernels/backend/kernel.hpp"
#include "kernels/backend/work_shares.hpp"
#include "kernels/qgemm/packed_buffer.hpp"
#include "kernels/simd/vector.hpp"

#ifdef PYG_TILES
#    include "kernels/qgemm/instances/instances.hpp"

namespace pyg::kernels {

namespace {

// What is multiplied without a pause: so many columns that a core's second cache holds them, beside so many groups of
// weights that they are seldom fetched anew. With AMX, unpacking takes more of the time.
struct AtOnce {
    int columns = 64;
    int groups  = 4;
};
constexpr int MOST_COLUMNS_AT_ONCE = 128;

AtOnce at_once() {
#    ifdef PYG_AMX
    if (amx::is_available()) {
        return {MOST_COLUMNS_AT_ONCE, 16};
    }
#    endif
    return {};
}

// A node's product: its rounded activations, and what meets what. Rows of activations are numbered over all their
// dimensions; by expert, a column stands for a choice of an expert, and several may share a row of activations.
template <class Type>
class Product {
  public:
    // Workspace of size() bytes holds all that is made on the way.
    Product(const ggml_tensor * op, void * workspace)
        : op_(op), weights_(op->src[0]), x_(op->src[1]), k_(x_->ne[0]), n_rows_(ggml_nrows(x_)),
          n_columns_(ggml_nrows(op)), rounded_(static_cast<ColumnTileFor<Type> *>(aligned(workspace))),
          results_(reinterpret_cast<float **>(rounded_ + n_rows_ * n_tiles() + SPARE_COLUMNS)),
          chosen_(op, reinterpret_cast<int64_t *>(results_ + n_columns_)),
          rows_(reinterpret_cast<int32_t *>(chosen_.n + ChosenExperts::count(op))) {}

    static size_t size(const ggml_tensor * op) {
        char * const  somewhere = reinterpret_cast<char *>(ALIGNMENT);
        const Product product(op, somewhere);
        return reinterpret_cast<char *>(product.rows_ + product.n_columns_) - somewhere + ALIGNMENT;
    }

    // All rows' tiles, one row after the other, go to the threads in equal parts.
    void round_activations(const ggml_compute_params * params) const {
        const int64_t n   = n_rows_ * n_tiles();
        const int64_t end = n * (params->ith + 1) / params->nth;
        for (int64_t i = n * params->ith / params->nth; i < end; ++i) {
            const int64_t row = i / n_tiles(), tile = i % n_tiles();
            const int     n_values = static_cast<int>(std::min<int64_t>(TILE_K, k_ - tile * TILE_K));
            fill_column<Type>(row_at(x_, row) + tile * TILE_K, n_values, rounded_[tile * n_rows_ + row]);
        }
        if (params->ith == 0) {
            std::memset(static_cast<void *>(rounded_ + n), 0, SPARE_COLUMNS * sizeof(*rounded_));
        }
    }

    // Writes down which columns there are, in order of the matrices that they are for.
    void list_columns() const {
        if (op_->op == GGML_OP_MUL_MAT) {
            for (int64_t i = 0; i < n_columns_; ++i) {
                set_column(i, i, i);
            }
            *chosen_.n        = 1;
            chosen_.expert[0] = 0;
            chosen_.first[0]  = 0;
            chosen_.first[1]  = n_columns_;
        } else {
            sort_choices(op_, chosen_, [&](int64_t place, int64_t choice) {
                const RowOfChoice row = row_of(op_, choice);
                set_column(place, row.i2 * x_->ne[1] + row.i1, choice);
            });
        }
    }

    // Multiplies what this thread can get hold of: groups of one matrix after the other.
    void multiply(const ggml_compute_params * params) const {
        const int64_t n_groups = (weights_->ne[1] + GROUP_ROWS - 1) / GROUP_ROWS;
        const Shares  shares(n_groups * *chosen_.n, params->nth);
        for (int64_t i = params->ith; i < shares.size(); i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
            const int64_t end = shares.begin(i + 1);
            for (int64_t g = shares.begin(i); g < end;) {
                const int64_t first = g % n_groups, n = std::min(n_groups - first, end - g);
                multiply_groups(g / n_groups, first, first + n);
                g += n;
            }
        }
#    ifdef PYG_AMX
        amx::release();
#    endif
    }

  private:
    static constexpr uintptr_t ALIGNMENT = alignof(ColumnTileFor<Type>);

    static void * aligned(void * workspace) {
        return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(workspace) + ALIGNMENT - 1) / ALIGNMENT *
                                        ALIGNMENT);
    }

    int64_t n_tiles() const { return (k_ + TILE_K - 1) / TILE_K; }

    void set_column(int64_t column, int64_t row, int64_t result) const {
        rows_[column]    = static_cast<int32_t>(row);
        results_[column] = reinterpret_cast<float *>(static_cast<char *>(op_->data) + result * op_->nb[1]);
    }

    // Multiplies groups [begin, end) of a chosen matrix with all its columns, so many at a time as a cache holds.
    void multiply_groups(int64_t which, int64_t begin, int64_t end) const {
        const AtOnce at_a_time = at_once();
        for (int64_t g = begin; g < end; g += at_a_time.groups) {
            const int64_t end_of_groups = std::min(g + at_a_time.groups, end);
            for (int64_t c = chosen_.first[which]; c < chosen_.first[which + 1]; c += at_a_time.columns) {
                multiply_columns(which, g, end_of_groups, c,
                                 std::min<int64_t>(at_a_time.columns, chosen_.first[which + 1] - c));
            }
        }
    }

    // Multiplies them with `n` columns from number `c` on.
    void multiply_columns(int64_t which, int64_t begin, int64_t end, int64_t c, int n) const {
        const auto        data        = static_cast<const uint8_t *>(weights_->data);
        const auto        weights     = data + chosen_.expert[which] * weights_->nb[2];
        const size_t      group_bytes = GROUP_ROWS * weights_->nb[1];
        alignas(64) float results[MOST_COLUMNS_AT_ONCE][GROUP_ROWS];
        for (int64_t g = begin; g < end; ++g) {
            ask_for_results(c, n, g);
            multiply_group<Type>(weights + g * group_bytes, k_, rounded_, n_rows_, rows_ + c, n, results);
            const int64_t n_rows = std::min<int64_t>(GROUP_ROWS, weights_->ne[1] - g * GROUP_ROWS);
            for (int i = 0; i < n; ++i) {
                copy_rows(results[i], n_rows, results_[c + i] + g * GROUP_ROWS);
            }
        }
    }

    // Has the memory that results will be written to brought into the second cache meanwhile: in the first one, lines
    // that are a power of two apart would drive each other out. So it is asked for as if to be read; what is to be
    // written goes to the first.
    void ask_for_results([[maybe_unused]] int64_t c, [[maybe_unused]] int n, [[maybe_unused]] int64_t group) const {
#    if defined(__GNUC__)
        for (int i = 0; i < n; ++i) {
            __builtin_prefetch(results_[c + i] + group * GROUP_ROWS, 0, 2);
        }
#    endif
    }

    // Mostly a constant number, which needs no call.
    static void copy_rows(const float (&from)[GROUP_ROWS], int64_t n, float * to) {
        if (n == GROUP_ROWS) {
            std::memcpy(to, from, sizeof(from));
        } else {
            std::memcpy(to, from, n * sizeof(float));
        }
    }

    const ggml_tensor *const op_, *const weights_, *const x_;
    const int64_t               k_, n_rows_, n_columns_;
    ColumnTileFor<Type> * const rounded_;  // [tile][row of activations]
    float ** const              results_;  // [column] of its first row
    const ChosenExperts         chosen_;   // and their columns; a plain product has but one matrix
    int32_t * const             rows_;     // [column] its row of activations
};

template <class Type>
class Products : public Kernel {
  public:
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = Product<Type>::size(op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const Product<Type> product(op, params->wdata);
        product.round_activations(params);
        if (params->ith == 0) {
            product.list_columns();
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);
        product.multiply(params);
        return true;
    }
};

template <class Type>
Kernel * products_of() {
    static Products<Type> products;
    return &products;
}

Kernel * products_of(ggml_type type) {
    switch (type) {
    case GGML_TYPE_Q4_0:
        return products_of<TilesQ40>();
    case GGML_TYPE_Q4_1:
        return products_of<TilesQ41>();
    case GGML_TYPE_Q5_0:
        return products_of<TilesQ50>();
    case GGML_TYPE_Q5_1:
        return products_of<TilesQ51>();
    case GGML_TYPE_Q8_0:
        return products_of<TilesQ80>();
    case GGML_TYPE_IQ4_NL:
        return products_of<TilesIQ4NL>();
    case GGML_TYPE_MXFP4:
        return products_of<TilesMXFP4>();
    case GGML_TYPE_Q4_K:
        return products_of<TilesQ4K>();
    case GGML_TYPE_Q5_K:
        return products_of<TilesQ5K>();
    case GGML_TYPE_Q6_K:
        return products_of<TilesQ6K>();
    case GGML_TYPE_IQ4_XS:
        return products_of<TilesIQ4XS>();
    default:
        return nullptr;
    }
}

}  // namespace

// The last group of a single matrix may lack rows, which the buffer has room for.
bool can_be_tiled(const ggml_tensor * weights) {
    return products_of(weights->type) && weights->ne[0] % ggml_blck_size(weights->type) == 0 && weights->ne[3] == 1 &&
           (weights->ne[1] % GROUP_ROWS == 0 || weights->ne[2] == 1) && ggml_is_contiguous(weights);
}

Kernel * product_for(const ggml_tensor * op) { return is_tiled(op->src[0]) ? products_of(op->src[0]->type) : nullptr; }

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

bool can_be_tiled(const ggml_tensor *) { return false; }

Kernel * product_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels

#endif
