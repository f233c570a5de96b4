// Products whose weights stay as they are in the file: of floats, and of every type without a tiled layout.
//
// Weights of floats meet the rows of activations as 32-bit floats; upstream rounds these to the type of the weights
// first. Each result is the sum of eight partial sums, one for each place in a vector, which go through the row from
// its beginning to its end; what is left of the row is added last. So a result is the same bits from every shape of
// block below, and wherever the work was cut.
//
// All other types go through upstream's function for the product of two rows, one result at a time.
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "kernel.hpp"

#include <algorithm>
#include <cmath>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    include <immintrin.h>
#    define PYG_FLOAT_PRODUCTS
#    if defined(__GNUC__)
#        define PYG_NOT_INLINED __attribute__((noinline))
#    else
#        define PYG_NOT_INLINED
#    endif
#endif

namespace pyg::kernels {
namespace {

constexpr int64_t PIECE_ROWS    = 24;  // of weights, in a piece of work; all blocks below divide it
constexpr int64_t PIECE_COLUMNS = 32;  // rows of activations, in a piece of work

int64_t pieces(int64_t n, int64_t of) { return (n + of - 1) / of; }

// A piece of work: rows of one matrix of weights, and some of the columns that meet this matrix. ggml repeats a matrix
// for several of the others in the third and fourth dimension, so that columns of all these meet the same weights.
struct Piece {
    const char * weights;  // the first row
    int64_t      n_rows;
    int64_t      n_columns;
    const char * columns[PIECE_COLUMNS];
    float *      results[PIECE_COLUMNS];  // of the first row
};

// How a product divides into pieces. Those that share weights follow one another, so that the weights are in a cache.
class Pieces {
  public:
    // `columns` has the shape of the activations; its strides say where they lie.
    Pieces(const ggml_tensor * op, const char * columns, const size_t * strides)
        : weights_(op->src[0]), op_(op), columns_(columns), strides_(strides), n_1_(op->ne[1]),
          repeats_2_(op->ne[2] / weights_->ne[2]), repeats_3_(op->ne[3] / weights_->ne[3]),
          n_columns_(n_1_ * repeats_2_ * repeats_3_), of_rows_(pieces(weights_->ne[1], PIECE_ROWS)),
          of_columns_(pieces(n_columns_, PIECE_COLUMNS)) {}

    int64_t size() const { return weights_->ne[2] * weights_->ne[3] * of_rows_ * of_columns_; }

    void get(int64_t index, Piece & piece) const {
        const int64_t matrix = index / (of_rows_ * of_columns_);
        const int64_t row    = index / of_columns_ % of_rows_ * PIECE_ROWS;
        const int64_t column = index % of_columns_ * PIECE_COLUMNS;
        const int64_t w2     = matrix % weights_->ne[2];
        const int64_t w3     = matrix / weights_->ne[2];
        const char *  first  = static_cast<const char *>(weights_->data);
        piece.weights        = first + row * weights_->nb[1] + w2 * weights_->nb[2] + w3 * weights_->nb[3];
        piece.n_rows         = std::min(PIECE_ROWS, weights_->ne[1] - row);
        piece.n_columns      = std::min(PIECE_COLUMNS, n_columns_ - column);
        for (int64_t c = 0; c < piece.n_columns; c++) {
            const int64_t i1  = (column + c) % n_1_;
            const int64_t i2  = (column + c) / n_1_ % repeats_2_ + w2 * repeats_2_;
            const int64_t i3  = (column + c) / n_1_ / repeats_2_ + w3 * repeats_3_;
            char * const  out = static_cast<char *>(op_->data);
            piece.columns[c]  = columns_ + i1 * strides_[1] + i2 * strides_[2] + i3 * strides_[3];
            piece.results[c] =
                reinterpret_cast<float *>(out + i1 * op_->nb[1] + i2 * op_->nb[2] + i3 * op_->nb[3]) + row;
        }
    }

  private:
    const ggml_tensor * weights_;
    const ggml_tensor * op_;
    const char *        columns_;
    const size_t *      strides_;
    int64_t             n_1_, repeats_2_, repeats_3_, n_columns_, of_rows_, of_columns_;
};

// Computes all pieces on the threads of `params`, each thread taking the next piece when it is done with one. The
// caller has let the threads meet since `start_work`.
template <typename Compute>
void share_work(const ggml_compute_params * params, const Pieces & all, const Compute & compute) {
    Piece piece;
    for (int64_t next = params->ith; next < all.size(); next = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        all.get(next, piece);
        compute(piece);
    }
}

// The first piece of each thread is its own number; the following are counted.
void start_work(const ggml_compute_params * params) {
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
}

// Row number `i` of all rows of activations.
const float * row_at(const ggml_tensor * columns, int64_t i) {
    const int64_t i1     = i % columns->ne[1];
    const int64_t i2     = i / columns->ne[1] % columns->ne[2];
    const int64_t i3     = i / columns->ne[1] / columns->ne[2];
    const size_t  offset = i1 * columns->nb[1] + i2 * columns->nb[2] + i3 * columns->nb[3];
    return reinterpret_cast<const float *>(static_cast<const char *>(columns->data) + offset);
}

#ifdef PYG_FLOAT_PRODUCTS

constexpr int64_t LANES = 8;  // in a vector

struct F32 {
    using Value = float;

    static __m256 load(const Value * values) { return _mm256_loadu_ps(values); }

    static float one(Value value) { return value; }
};

struct F16 {
    using Value = ggml_fp16_t;

    static __m256 load(const Value * values) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(values)));
    }

    static float one(Value value) { return _cvtsh_ss(value); }
};

struct BF16 {
    using Value = ggml_bf16_t;

    static __m256 load(const Value * values) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(values));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }

    static float one(Value value) { return ggml_bf16_to_fp32(value); }
};

// Keeps a value in a register: compilers would rather read it again from memory for each of its uses.
inline void keep([[maybe_unused]] __m256 & value) {
#    if defined(__GNUC__)
    __asm__("" : "+x"(value));
#    endif
}

template <typename Weight>
const typename Weight::Value * row_of(const Piece & piece, int64_t row, size_t stride) {
    return reinterpret_cast<const typename Weight::Value *>(piece.weights + row * stride);
}

float total(__m256 sums) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
    const __m128 two  = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Computes a block of results, of rows with `n` values. Not inlined: among other code its sums would not all be kept in
// registers.
template <typename Weight, int n_rows, int n_columns>
PYG_NOT_INLINED void compute_block(const Piece & piece, size_t stride, int64_t n, int64_t row, int64_t column) {
    const typename Weight::Value * weights[n_rows];
    const float *                  columns[n_columns];
    __m256                         sums[n_rows][n_columns];
    for (int r = 0; r < n_rows; r++) {
        weights[r] = row_of<Weight>(piece, row + r, stride);
        for (int c = 0; c < n_columns; c++) {
            columns[c] = reinterpret_cast<const float *>(piece.columns[column + c]);
            sums[r][c] = _mm256_setzero_ps();
        }
    }
    const int64_t in_vectors = n - n % LANES;
    for (int64_t i = 0; i < in_vectors; i += LANES) {
        if constexpr (n_columns <= n_rows) {
            __m256 x[n_columns];
            for (int c = 0; c < n_columns; c++) {
                x[c] = _mm256_loadu_ps(columns[c] + i);
            }
            for (int r = 0; r < n_rows; r++) {
                __m256 w = Weight::load(weights[r] + i);
                keep(w);
                for (int c = 0; c < n_columns; c++) {
                    sums[r][c] = _mm256_fmadd_ps(w, x[c], sums[r][c]);
                }
            }
        } else {
            __m256 w[n_rows];
            for (int r = 0; r < n_rows; r++) {
                w[r] = Weight::load(weights[r] + i);
            }
            for (int c = 0; c < n_columns; c++) {
                __m256 x = _mm256_loadu_ps(columns[c] + i);
                keep(x);
                for (int r = 0; r < n_rows; r++) {
                    sums[r][c] = _mm256_fmadd_ps(w[r], x, sums[r][c]);
                }
            }
        }
    }
    for (int c = 0; c < n_columns; c++) {
        for (int r = 0; r < n_rows; r++) {
            float result = total(sums[r][c]);
            for (int64_t i = in_vectors; i < n; i++) {
                result = std::fma(Weight::one(weights[r][i]), columns[c][i], result);
            }
            piece.results[column + c][row + r] = result;
        }
    }
}

// Computes some columns of a piece: blocks of so many rows, and the other rows one by one.
template <typename Weight, int n_rows, int n_columns>
void compute_columns(const Piece & piece, size_t stride, int64_t n, int64_t column) {
    int64_t row = 0;
    for (; row + n_rows <= piece.n_rows; row += n_rows) {
        compute_block<Weight, n_rows, n_columns>(piece, stride, n, row, column);
    }
    for (; row < piece.n_rows; row++) {
        compute_block<Weight, 1, n_columns>(piece, stride, n, row, column);
    }
}

// Computes a piece: four columns at a time, and the others together. Twelve results of a block fill the registers.
template <typename Weight>
void compute_piece(const Piece & piece, size_t stride, int64_t n) {
    int64_t column = 0;
    for (; column + 4 <= piece.n_columns; column += 4) {
        compute_columns<Weight, 3, 4>(piece, stride, n, column);
    }
    switch (piece.n_columns - column) {
    case 3:
        return compute_columns<Weight, 4, 3>(piece, stride, n, column);
    case 2:
        return compute_columns<Weight, 6, 2>(piece, stride, n, column);
    case 1:
        return compute_columns<Weight, 8, 1>(piece, stride, n, column);
    default:
        return;
    }
}

template <typename Weight>
class FloatProduct : public Kernel {
  public:
    bool work_size(int, const ggml_tensor *, size_t & size) override {
        size = 0;
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        start_work(params);
        ggml_barrier(params->threadpool);
        const ggml_tensor * const weights = op->src[0];
        const ggml_tensor * const columns = op->src[1];
        const Pieces              all(op, static_cast<const char *>(columns->data), columns->nb);
        share_work(params, all,
                   [&](const Piece & piece) { compute_piece<Weight>(piece, weights->nb[1], weights->ne[0]); });
        return true;
    }
};

#endif

Kernel * float_product_for([[maybe_unused]] ggml_type type) {
#ifdef PYG_FLOAT_PRODUCTS
    static FloatProduct<F32>  of_f32;
    static FloatProduct<F16>  of_f16;
    static FloatProduct<BF16> of_bf16;
    switch (type) {
    case GGML_TYPE_F32:
        return &of_f32;
    case GGML_TYPE_F16:
        return &of_f16;
    case GGML_TYPE_BF16:
        return &of_bf16;
    default:
        break;
    }
#endif
    return nullptr;
}

// Activations are converted once, row by row, into the type that upstream's function wants beside these weights.
class ConvertedProduct : public Kernel {
  public:
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = ggml_row_size(wanted(op), op->src[1]->ne[0]) * ggml_nrows(op->src[1]);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const ggml_tensor * const weights    = op->src[0];
        const int64_t             n          = weights->ne[0];
        const size_t              row        = ggml_row_size(wanted(op), n);
        const size_t              strides[4] = {0, row, row * op->ne[1], row * op->ne[1] * op->ne[2]};
        start_work(params);
        convert(params, op->src[1], wanted(op), row);
        ggml_barrier(params->threadpool);
        const ggml_vec_dot_t dot = ggml_get_type_traits_cpu(weights->type)->vec_dot;
        const Pieces         all(op, static_cast<const char *>(params->wdata), strides);
        share_work(params, all, [&](const Piece & piece) {
            for (int64_t r = 0; r < piece.n_rows; r++) {
                for (int64_t c = 0; c < piece.n_columns; c++) {
                    dot(static_cast<int>(n), piece.results[c] + r, 0, piece.weights + r * weights->nb[1], 0,
                        piece.columns[c], 0, 1);
                }
            }
        });
        return true;
    }

  private:
    static ggml_type wanted(const ggml_tensor * op) { return ggml_get_type_traits_cpu(op->src[0]->type)->vec_dot_type; }

    // Each thread converts its share of the blocks of every row.
    static void convert(const ggml_compute_params * params, const ggml_tensor * columns, ggml_type type, size_t row) {
        const ggml_from_float_t from_float = ggml_get_type_traits_cpu(type)->from_float;
        const int64_t           block      = ggml_blck_size(type);
        const int64_t           n_blocks   = columns->ne[0] / block;
        const int64_t           begin      = n_blocks * params->ith / params->nth;
        const int64_t           end        = n_blocks * (params->ith + 1) / params->nth;
        for (int64_t i = 0; begin < end && i < ggml_nrows(columns); i++) {
            const float * values = row_at(columns, i);
            char * const  out    = static_cast<char *>(params->wdata) + i * row + begin * ggml_type_size(type);
            from_float(values + begin * block, out, (end - begin) * block);
        }
    }
};

// Whether the weights lie where upstream's own functions read them.
bool in_plain_memory(const ggml_tensor * weights) {
    return weights->buffer == nullptr || ggml_backend_buffer_is_host(weights->buffer);
}

bool has_rows_of_floats(const ggml_tensor * tensor) {
    return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
}

}  // namespace

Kernel * row_product_for(const ggml_tensor * op) {
    const ggml_tensor * const weights = op->src[0];
    if (op->op != GGML_OP_MUL_MAT || ggml_get_op_params_i32(op, 1) == GGML_HINT_SRC0_IS_HADAMARD ||
        !has_rows_of_floats(op->src[1]) || !has_rows_of_floats(op) || !in_plain_memory(weights) ||
        weights->nb[0] != ggml_type_size(weights->type) || ggml_is_transposed(weights)) {
        return nullptr;
    }
    if (Kernel * const kernel = float_product_for(weights->type)) {
        return kernel;
    }
    static ConvertedProduct            converted;
    const ggml_type_traits_cpu * const traits    = ggml_get_type_traits_cpu(weights->type);
    const bool                         quantised = ggml_is_quantized(weights->type) && traits->vec_dot != nullptr;
    return quantised && ggml_get_type_traits_cpu(traits->vec_dot_type)->from_float != nullptr ? &converted : nullptr;
}

}  // namespace pyg::kernels
