#include "columns.hpp"

#include <algorithm>
#include <cmath>

namespace pyg::kernels {

namespace {

constexpr float SMALLEST = 1e-36F;  // below it, 127 / x would be infinite

constexpr size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Eight maxima side by side, which compilers make one vector of.
float largest_magnitude(const float * x, int n) {
    float lanes[8] = {};
    for (int i = 0; i < n; i += 8) {
        for (int j = 0; j < 8; ++j) {
            const float magnitude = std::fabs(x[i + j]);
            lanes[j]              = lanes[j] < magnitude ? magnitude : lanes[j];
        }
    }
    return *std::max_element(lanes, lanes + 8);
}

void round_block(const float * x, int n, float inverse, int8_t * q) {
    constexpr float TO_NEAREST = 12582912.0F;  // 1.5 * 2^23: adding it rounds, and leaves the integer in the low bits
    for (int i = 0; i < n; ++i) {
        const float shifted = x[i] * inverse + TO_NEAREST;
        int32_t     bits;
        static_assert(sizeof(bits) == sizeof(shifted));
        __builtin_memcpy(&bits, &shifted, sizeof(bits));
        q[i] = static_cast<int8_t>(bits);
    }
}

}  // namespace

size_t column_bytes(int64_t k) {
    return aligned(static_cast<size_t>(k)) + aligned(k / 32 * sizeof(float)) + aligned(k / 16 * sizeof(int16_t));
}

Column column_at(const char * bytes, int64_t k) {
    const char * const d    = bytes + aligned(static_cast<size_t>(k));
    const char * const sums = d + aligned(k / 32 * sizeof(float));
    return {reinterpret_cast<const int8_t *>(bytes), reinterpret_cast<const float *>(d),
            reinterpret_cast<const int16_t *>(sums)};
}

void fill_column(const float * x, int64_t begin, int64_t end, int block, int segment, const Column & column) {
    const auto q    = const_cast<int8_t *>(column.q);
    const auto d    = const_cast<float *>(column.d);
    const auto sums = const_cast<int16_t *>(column.sums);
    for (int64_t i = begin; i < end; i += block) {
        const float largest = largest_magnitude(x + i, block);
        d[i / block]        = largest / 127;
        round_block(x + i, block, largest > SMALLEST ? 127 / largest : 0, q + i);
    }
    for (int64_t i = begin; i < end; i += segment) {
        int sum = 0;
        for (int j = 0; j < segment; ++j) {
            sum += q[i + j];
        }
        sums[i / segment] = static_cast<int16_t>(sum);
    }
}

}  // namespace pyg::kernels
