// Pooling of token vectors, and normalisation, text by text: in double precision and one fixed order, so that a text's
// vector does not depend on the other texts.
#include "boundary/guard.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

using pyg::fail;

// Vectors of one text's tokens.
struct Rows {
    const float * first;
    int32_t       n;
    int32_t       n_columns;

    const float * operator[](int32_t i) const { return first + static_cast<int64_t>(i) * n_columns; }
};

// dst = sum of the rows, each multiplied by weight(i), divided by `divisor`.
template <class Weight>
void add_up(const Rows & rows, double divisor, std::vector<double> & sums, float * dst, Weight && weight) {
    sums.assign(static_cast<size_t>(rows.n_columns), 0.0);
    for (int32_t i = 0; i < rows.n; i++) {
        const float * const row    = rows[i];
        const double        factor = weight(i);
        for (int32_t k = 0; k < rows.n_columns; k++) {
            sums[static_cast<size_t>(k)] += factor * static_cast<double>(row[k]);
        }
    }
    std::transform(sums.begin(), sums.end(), dst, [&](double sum) { return static_cast<float>(sum / divisor); });
}

void take_largest(const Rows & rows, float * dst) {
    std::copy_n(rows[0], rows.n_columns, dst);
    for (int32_t i = 1; i < rows.n; i++) {
        const float * const row = rows[i];
        for (int32_t k = 0; k < rows.n_columns; k++) {
            dst[k] = std::max(dst[k], row[k]);
        }
    }
}

void pool(const Rows & rows, int32_t pooling, std::vector<double> & sums, float * dst) {
    const auto n   = static_cast<double>(rows.n);
    const auto one = [](int32_t) { return 1.0; };
    switch (pooling) {
    case PYG_POOLING_CLS:
        std::copy_n(rows[0], rows.n_columns, dst);
        return;
    case PYG_POOLING_LAST:
        std::copy_n(rows[rows.n - 1], rows.n_columns, dst);
        return;
    case PYG_POOLING_MEAN:
        add_up(rows, n, sums, dst, one);
        return;
    case PYG_POOLING_MAX:
        take_largest(rows, dst);
        return;
    case PYG_POOLING_MEAN_SQRT_LEN:
        add_up(rows, std::sqrt(n), sums, dst, one);
        return;
    case PYG_POOLING_WEIGHTED_MEAN:
        add_up(rows, n * (n + 1) / 2, sums, dst, [](int32_t i) { return static_cast<double>(i + 1); });
        return;
    default:
        throw fail(PYG_ERR_INVALID_PARAMETER, "there is no kind of pooling with the number %d", pooling);
    }
}

}  // namespace

pyg_status pyg_pool(const float * rows, int32_t n_columns, const int32_t * lengths, int32_t n_texts, int32_t n_skipped,
                    int32_t pooling, float * dst, int64_t dst_stride, pyg_error * err) {
    return pyg::guard(err, [&] {
        std::vector<double> sums;
        for (int32_t i = 0; i < n_texts; i++) {
            if (lengths[i] < 1) {
                throw fail(PYG_ERR_INVALID_PARAMETER, "text %d has %d tokens, and at least one is needed", i,
                           lengths[i]);
            }
            const Rows    all     = {rows, lengths[i], n_columns};
            const int32_t skipped = std::clamp(n_skipped, 0, lengths[i] - 1);
            pool({all[skipped], lengths[i] - skipped, n_columns}, pooling, sums, dst + i * dst_stride);
            rows = all[lengths[i]];
        }
    });
}

void pyg_normalize_rows(float * rows, int64_t n_rows, int64_t n_columns) {
    for (float * row = rows; row != rows + n_rows * n_columns; row += n_columns) {
        double sum = 0.0;
        for (int64_t k = 0; k < n_columns; k++) {
            sum += static_cast<double>(row[k]) * static_cast<double>(row[k]);
        }
        const double length = sum > 0.0 ? std::sqrt(sum) : 1.0;
        for (int64_t k = 0; k < n_columns; k++) {
            row[k] = static_cast<float>(static_cast<double>(row[k]) / length);
        }
    }
}
