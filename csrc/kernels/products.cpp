// Products of weights that lie in tiles with the activations of a step, plain and by expert.
//
// All threads round the activations to bytes. Then each takes some groups of 16 rows after the other, unpacks their
// tiles once, and multiplies them with all columns that the weights are for.
#include "ggml-cpu.h"
#include "kernel.hpp"
#include "tiled_buffer.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    include "multiply_tile.hpp"

namespace pyg::kernels {

namespace {

constexpr int COLUMNS_AT_ONCE = 64;  // not yet tuned
constexpr int GROUPS_AT_ONCE  = 4;   // the same

using MultiplyGroup = void (*)(const uint8_t * group, size_t block_bytes, int64_t k, const Column * columns,
                               int n_columns, float (*results)[GROUP_ROWS]);

struct Multiplier {
    MultiplyGroup multiply;
    int           block;
    int           segment;
};

template <class Type>
constexpr Multiplier multiplier() {
    return {multiply_group<Type>, Type::BLOCK, Type::SEGMENT};
}

Multiplier multiplier_of(ggml_type type) {
    switch (type) {
    case GGML_TYPE_Q4_0:
        return multiplier<TilesQ40>();
    case GGML_TYPE_Q5_0:
        return multiplier<TilesQ50>();
    case GGML_TYPE_Q8_0:
        return multiplier<TilesQ80>();
    case GGML_TYPE_Q4_K:
        return multiplier<TilesQ4K>();
    case GGML_TYPE_Q5_K:
        return multiplier<TilesQ5K>();
    case GGML_TYPE_Q6_K:
        return multiplier<TilesQ6K>();
    default:
        return {};
    }
}

// One product of the node: some columns of activations, and where their results go, with one matrix of weights.
struct Part {
    const uint8_t * weights;
    const Column *  columns;
    float * const * results;
    int64_t         n_columns;
};

void multiply_groups(const Multiplier & multiplier, const ggml_tensor * weights, const Part & part, int64_t begin,
                     int64_t end) {
    const size_t block_bytes = ggml_type_size(weights->type);
    const size_t group_bytes = GROUP_ROWS * weights->nb[1];
    float        results[COLUMNS_AT_ONCE][GROUP_ROWS];
    for (int64_t c = 0; c < part.n_columns; c += COLUMNS_AT_ONCE) {
        const int n = static_cast<int>(std::min<int64_t>(COLUMNS_AT_ONCE, part.n_columns - c));
        for (int64_t g = begin; g < end; ++g) {
            multiplier.multiply(part.weights + g * group_bytes, block_bytes, weights->ne[0], part.columns + c, n,
                                results);
            for (int i = 0; i < n; ++i) {
                std::memcpy(part.results[c + i] + g * GROUP_ROWS, results[i], sizeof(results[i]));
            }
        }
    }
}

// How the workspace is cut. Rows of activations are numbered over all their dimensions; by expert, a column stands for
// a choice of an expert, and several may share a row of activations.
class Workspace {
  public:
    Workspace(const ggml_tensor * op, void * data)
        : k_(op->src[1]->ne[0]), n_rows_(ggml_nrows(op->src[1])), n_columns_(ggml_nrows(op)),
          n_matrices_(op->src[0]->ne[2]), data_(static_cast<char *>(data)) {}

    size_t   bytes() const { return first_of() + (n_matrices_ + 1) * sizeof(int64_t) + 64; }
    char *   row(int64_t i) const { return data_ + i * column_bytes(k_); }
    Column * columns() const { return reinterpret_cast<Column *>(data_ + columns_of()); }
    float ** results() const { return reinterpret_cast<float **>(data_ + results_of()); }
    // The number of each matrix' first column, and of the one after the last.
    int64_t * first() const { return reinterpret_cast<int64_t *>(data_ + first_of()); }

  private:
    size_t columns_of() const { return n_rows_ * column_bytes(k_); }
    size_t results_of() const { return columns_of() + n_columns_ * sizeof(Column); }
    size_t first_of() const { return results_of() + n_columns_ * sizeof(float *); }

    const int64_t k_, n_rows_, n_columns_, n_matrices_;
    char * const  data_;
};

const float * activations(const ggml_tensor * tensor, int64_t i) {
    const int64_t i1 = i % tensor->ne[1];
    const int64_t i2 = i / tensor->ne[1] % tensor->ne[2];
    const int64_t i3 = i / tensor->ne[1] / tensor->ne[2];
    return reinterpret_cast<const float *>(static_cast<const char *>(tensor->data) + i1 * tensor->nb[1] +
                                           i2 * tensor->nb[2] + i3 * tensor->nb[3]);
}

// Cuts all rows' blocks, one after the other, into as many parts as there are threads.
void round_activations(const ggml_compute_params * params, const ggml_tensor * x, const Multiplier & multiplier,
                       const Workspace & workspace) {
    const int64_t k        = x->ne[0];
    const int64_t n_blocks = k / multiplier.block;
    const int64_t n        = n_blocks * ggml_nrows(x);
    const int64_t end      = n * (params->ith + 1) / params->nth;
    for (int64_t i = n * params->ith / params->nth; i < end;) {
        const int64_t row   = i / n_blocks;
        const int64_t until = std::min(end, (row + 1) * n_blocks);
        fill_column(activations(x, row), (i - row * n_blocks) * multiplier.block,
                    (until - row * n_blocks) * multiplier.block, multiplier.block, multiplier.segment,
                    column_at(workspace.row(row), k));
        i = until;
    }
}

// Writes down which columns there are, in order of the experts they are for.
void list_columns(const ggml_tensor * op, const Workspace & workspace) {
    const ggml_tensor * const x     = op->src[1];
    int64_t * const           first = workspace.first();
    const int64_t             n     = ggml_nrows(op);
    const auto                add   = [&](int64_t at, int64_t row, int64_t result) {
        workspace.columns()[at] = column_at(workspace.row(row), x->ne[0]);
        workspace.results()[at] = reinterpret_cast<float *>(static_cast<char *>(op->data) + result * op->nb[1]);
    };
    if (op->op == GGML_OP_MUL_MAT) {
        for (int64_t i = 0; i < n; ++i) {
            add(i, i, i);
        }
        first[0] = 0;
        first[1] = n;
        return;
    }
    const ggml_tensor * const ids      = op->src[2];
    const int64_t             n_used   = ids->ne[0];
    const int64_t             n_expert = op->src[0]->ne[2];
    const auto                expert   = [&](int64_t i) {
        const char * const at =
            static_cast<const char *>(ids->data) + i / n_used * ids->nb[1] + i % n_used * ids->nb[0];
        return *reinterpret_cast<const int32_t *>(at);
    };
    std::fill_n(first, n_expert + 1, 0);
    for (int64_t i = 0; i < n; ++i) {
        GGML_ASSERT(expert(i) >= 0 && expert(i) < n_expert);
        ++first[expert(i) + 1];
    }
    for (int64_t e = 0; e < n_expert; ++e) {
        first[e + 1] += first[e];
    }
    for (int64_t i = 0; i < n; ++i) {
        add(first[expert(i)]++, i / n_used * x->ne[1] + i % n_used % x->ne[1], i);
    }
    for (int64_t e = n_expert; e > 0; --e) {  // each has become the next one's first
        first[e] = first[e - 1];
    }
    first[0] = 0;
}

void multiply(const ggml_compute_params * params, const ggml_tensor * op, const Multiplier & multiplier,
              const Workspace & workspace) {
    const ggml_tensor * const weights  = op->src[0];
    const int64_t             n_groups = weights->ne[1] / GROUP_ROWS;
    const int64_t             at_once  = std::clamp<int64_t>(n_groups / (4 * params->nth), 1, GROUPS_AT_ONCE);
    const int64_t             n_pieces = (n_groups + at_once - 1) / at_once;
    const int64_t             n_tasks  = n_pieces * weights->ne[2];
    const int64_t * const     first    = workspace.first();
    for (int64_t task = params->ith; task < n_tasks; task = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t matrix = task / n_pieces;
        const int64_t begin  = task % n_pieces * at_once;
        const Part    part   = {static_cast<const uint8_t *>(weights->data) + matrix * weights->nb[2],
                                workspace.columns() + first[matrix], workspace.results() + first[matrix],
                                first[matrix + 1] - first[matrix]};
        multiply_groups(multiplier, weights, part, begin, std::min(begin + at_once, n_groups));
    }
}

class Products : public Kernel {
  public:
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = Workspace(op, nullptr).bytes();
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const Multiplier multiplier = multiplier_of(op->src[0]->type);
        const Workspace  workspace(op, params->wdata);
        round_activations(params, op->src[1], multiplier, workspace);
        if (params->ith == 0) {
            list_columns(op, workspace);
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);
        multiply(params, op, multiplier, workspace);
        return true;
    }
};

}  // namespace

bool can_be_tiled(const ggml_tensor * weights) {
    const Multiplier multiplier = multiplier_of(weights->type);
    return multiplier.multiply && weights->ne[0] % multiplier.block == 0 && weights->ne[1] % GROUP_ROWS == 0 &&
           weights->ne[3] == 1 && ggml_is_contiguous(weights);
}

Kernel * product_for(const ggml_tensor * op) {
    static Products products;
    return is_tiled(op->src[0]) ? &products : nullptr;
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

bool can_be_tiled(const ggml_tensor *) { return false; }

Kernel * product_for(const ggml_tensor *) { return nullptr; }

}  // namespace pyg::kernels

#endif
