#include "sampling/block_maxima.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>

// Versions for wider vectors of what takes most of the time, chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&               \
    !defined(__SANITIZE_ADDRESS__)
#    define VECTORIZED __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#    define VECTORIZED
#endif

namespace {

constexpr float   INF   = std::numeric_limits<float>::infinity();
constexpr int32_t LANES = 32;  // independent maxima, as many as hide the latency of comparing

// Blocks of a row: enough to find two hundred large logits, few enough to sort their maxima in microseconds.
constexpr int32_t N_BLOCKS = 256;

// Maximum of each block of `n_block` values, a multiple of LANES. Return the sum of all values, which is NaN or
// +infinity if one of them is: adding takes no time while maxima are computed.
VECTORIZED float scan_blocks(const float * values, int32_t n_blocks, int32_t n_block, float * maxima) {
    float sums[LANES] = {};
    for (int32_t block = 0; block < n_blocks; block++, values += n_block) {
        float largest[LANES];
        for (float & each : largest) {
            each = -INF;
        }
        for (int32_t i = 0; i < n_block; i += LANES) {
            for (int32_t lane = 0; lane < LANES; lane++) {
                const float value = values[i + lane];
                largest[lane]     = value > largest[lane] ? value : largest[lane];
                sums[lane] += value;
            }
        }
        for (int32_t width = LANES / 2; width > 0; width /= 2) {
            for (int32_t lane = 0; lane < width; lane++) {
                const float other = largest[lane + width];
                largest[lane]     = other > largest[lane] ? other : largest[lane];
            }
        }
        maxima[block] = largest[0];
    }
    float sum = 0;
    for (const float each : sums) {
        sum += each;
    }
    return sum;
}

// Indices of the values of at least `least`, and how many they are.
VECTORIZED int32_t find_at_least(const float * values, int32_t n, float least, int32_t * indices) {
    int32_t n_found = 0;
    for (int32_t start = 0; start < n; start += LANES) {
        const int32_t n_lanes = std::min(LANES, n - start);
        int32_t       any     = n_lanes != LANES;
        for (int32_t lane = 0; n_lanes == LANES && lane < LANES; lane++) {
            any |= values[start + lane] >= least;
        }
        for (int32_t i = start; any && i < start + n_lanes; i++) {
            indices[n_found] = i;
            n_found += values[i] >= least;
        }
    }
    return n_found;
}

// Copy the values of at least `least`, without a branch that would be hard to predict. Return how many there are.
int32_t filter(const float * values, int32_t n, float least, float * out) {
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        out[n_out] = values[i];
        n_out += values[i] >= least;
    }
    return n_out;
}

}  // namespace

namespace pyg {

bool BlockMaxima::scan(const float * row, int32_t n) {
    row_                   = row;
    n_                     = n;
    block_                 = ((n + N_BLOCKS - 1) / N_BLOCKS + LANES - 1) / LANES * LANES;
    const int32_t n_blocks = n / block_;
    maxima_.resize(static_cast<size_t>(n_blocks));
    float sum = scan_blocks(row, n_blocks, block_, maxima_.data());
    if (n % block_ != 0) {
        float last = -INF;
        for (int32_t i = n_blocks * block_; i < n; i++) {
            last = row[i] > last ? row[i] : last;
            sum += row[i];
        }
        maxima_.push_back(last);
    }
    largest_ = *std::max_element(maxima_.begin(), maxima_.end());
    return sum < INF;
}

int32_t BlockMaxima::size(size_t block) const { return std::min(block_, n_ - first(block)); }

int32_t BlockMaxima::first_of_largest() const {
    if (largest_ == -INF) {
        return -1;
    }
    const auto block = static_cast<size_t>(std::find(maxima_.begin(), maxima_.end(), largest_) - maxima_.begin());
    const float * const start = row_ + first(block);
    return static_cast<int32_t>(std::find(start, start + size(block), largest_) - row_);
}

// The n-th largest of the maxima of groups of blocks. A group has every m-th block: large logits are often neighbours,
// and in the same group only one of them would count.
float BlockMaxima::threshold(size_t n) {
    constexpr size_t GROUPS_PER_CANDIDATE = 4;
    const size_t     n_groups             = std::min(maxima_.size(), GROUPS_PER_CANDIDATE * n);
    if (n == 0 || n > n_groups) {
        return -INF;
    }
    groups_.assign(maxima_.begin(), maxima_.begin() + static_cast<ptrdiff_t>(n_groups));
    for (size_t i = n_groups, group = 0; i < maxima_.size(); i++) {
        groups_[group] = std::max(groups_[group], maxima_[i]);
        group          = group + 1 == n_groups ? 0 : group + 1;
    }
    const auto nth = groups_.begin() + static_cast<ptrdiff_t>(n) - 1;
    std::nth_element(groups_.begin(), nth, groups_.end(), std::greater<float>());
    return *nth;
}

void BlockMaxima::collect(float threshold, Shortlist & out) {
    indices_.resize(static_cast<size_t>(block_));
    out.candidates.clear();
    out.bound = std::nextafter(threshold, -INF);
    for (size_t block = 0; block < maxima_.size(); block++) {
        if (maxima_[block] < threshold) {
            continue;
        }
        const int32_t n = find_at_least(row_ + first(block), size(block), threshold, indices_.data());
        for (int32_t i = 0; i < n; i++) {
            const int32_t id = first(block) + indices_[static_cast<size_t>(i)];
            out.candidates.push_back({id, row_[id], 0});
        }
    }
}

// Leaves out terms that are lost in rounding: those of less than half of the last bit of the sum so far. A term of less
// than sum * 2^-25 is one of them, and in a typical row most are.
float BlockMaxima::sum_of_exp(float temperature) const {
    constexpr float    MARGIN   = 0.01F;  // for the errors of the logarithm and of exp
    const float        LAST_BIT = std::log(0x1p-25F) - MARGIN;
    const float        largest  = largest_ / temperature;
    float              sum      = 0;
    float              least    = -INF;  // lower logits change nothing
    std::vector<float> logits(static_cast<size_t>(block_));
    for (size_t block = 0; block < maxima_.size(); block++) {
        if (maxima_[block] < least) {
            continue;
        }
        const int32_t n = filter(row_ + first(block), size(block), least, logits.data());
        for (int32_t i = 0; i < n; i++) {
            sum += expf(logits[static_cast<size_t>(i)] / temperature - largest);
        }
        const float limit = (largest + std::log(sum) + LAST_BIT) * temperature;
        least             = limit - std::abs(limit) * FLT_EPSILON * 8;
    }
    return sum;
}

}  // namespace pyg
