// Products of weights that are floats, and stay as they are in the file.
//
// Weights meet the rows of activations as 32-bit floats; upstream rounds these to the type of the weights first. Each
// result is the sum of eight partial sums, one for each place in a vector, which go through the row from its beginning
// to its end; what is left of the row is added last. So a result is the same bits from every shape of block below, and
// wherever the work was cut.
#include "pieces.hpp"
#include "row_products.hpp"

#include <cmath>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#    include <immintrin.h>
#    if defined(__GNUC__)
#        define PYG_NOT_INLINED __attribute__((noinline))
#    else
#        define PYG_NOT_INLINED
#    endif

namespace pyg::kernels {
namespace {

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
    for (int r = 0; r < n_rows; ++r) {
        weights[r] = row_of<Weight>(piece, row + r, stride);
        for (int c = 0; c < n_columns; ++c) {
            columns[c] = reinterpret_cast<const float *>(piece.columns[column + c]);
            sums[r][c] = _mm256_setzero_ps();
        }
    }
    const int64_t in_vectors = n - n % LANES;
    for (int64_t i = 0; i < in_vectors; i += LANES) {
        if constexpr (n_columns <= n_rows) {
            __m256 x[n_columns];
            for (int c = 0; c < n_columns; ++c) {
                x[c] = _mm256_loadu_ps(columns[c] + i);
            }
            for (int r = 0; r < n_rows; ++r) {
                __m256 w = Weight::load(weights[r] + i);
                keep(w);
                for (int c = 0; c < n_columns; ++c) {
                    sums[r][c] = _mm256_fmadd_ps(w, x[c], sums[r][c]);
                }
            }
        } else {
            __m256 w[n_rows];
            for (int r = 0; r < n_rows; ++r) {
                w[r] = Weight::load(weights[r] + i);
            }
            for (int c = 0; c < n_columns; ++c) {
                __m256 x = _mm256_loadu_ps(columns[c] + i);
                keep(x);
                for (int r = 0; r < n_rows; ++r) {
                    sums[r][c] = _mm256_fmadd_ps(w[r], x, sums[r][c]);
                }
            }
        }
    }
    for (int c = 0; c < n_columns; ++c) {
        for (int r = 0; r < n_rows; ++r) {
            float result = total(sums[r][c]);
            for (int64_t i = in_vectors; i < n; ++i) {
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
    for (; row < piece.n_rows; ++row) {
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
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = Pieces::workspace_bytes(op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const ggml_tensor * const weights = op->src[0];
        const ggml_tensor * const columns = op->src[1];
        start_work(params, op, params->wdata);
        const Pieces all(op, static_cast<const char *>(columns->data), columns->nb, params->wdata);
        share_work(params, all,
                   [&](const Piece & piece) { compute_piece<Weight>(piece, weights->nb[1], weights->ne[0]); });
        return true;
    }
};

}  // namespace

Kernel * float_product_for(ggml_type type) {
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
        return nullptr;
    }
}

}  // namespace pyg::kernels

#else

namespace pyg::kernels {

Kernel * float_product_for(ggml_type) { return nullptr; }

}  // namespace pyg::kernels

#endif
