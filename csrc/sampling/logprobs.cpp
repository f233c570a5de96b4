#include "sampling/logprobs.hpp"

#include "boundary/guard.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace {

using pyg::fail;

constexpr float   MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr int32_t LANES          = 16;   // independent accumulators, because the compiler must not reorder a single one
constexpr int32_t BLOCK          = 512;  // a multiple of LANES; small enough for float sums with an error of 1e-6

// exp(x) for x <= 0 with a relative error of about 2e-7, written so that compilers vectorize it; expf would take longer
// than everything else here. Computes 2^n * exp(r) with the nearest integer n and a polynomial.
float exp_of_negative(float x) {
    constexpr float LOG2_E = 1.44269504f, LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;
    constexpr float TO_INTEGER = 12582912.0f;  // 1.5 * 2^23: adding it rounds away the fraction
    x                          = x > -87.0f ? x : -87.0f;
    const float n              = (x * LOG2_E + TO_INTEGER) - TO_INTEGER;
    const float r              = (x - n * LN2_HIGH) - n * LN2_LOW;
    float       series         = 1.0f / 720;
    series                     = series * r + 1.0f / 120;
    series                     = series * r + 1.0f / 24;
    series                     = series * r + 1.0f / 6;
    series                     = series * r + 0.5f;
    series                     = series * r + 1.0f;
    series                     = series * r + 1.0f;
    const int32_t bits         = (static_cast<int32_t>(n) + 127) << 23;
    float         power;
    std::memcpy(&power, &bits, sizeof(power));
    return series * power;
}

// Sum of exp(value - reference) over a block. Terms first, then sums: compilers vectorize both loops.
double sum_of_exp(const float * values, int32_t n, float reference) {
    float terms[BLOCK] = {};
    for (int32_t i = 0; i < n; i++) {
        terms[i] = exp_of_negative(values[i] - reference);
    }
    float lanes[LANES] = {};
    for (int32_t i = 0; i < BLOCK; i += LANES) {
        for (int32_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += terms[i + lane];
        }
    }
    return std::accumulate(lanes, lanes + LANES, 0.0);
}

// The largest values seen and their indices, as a heap with the smallest in front.
class TopK {
  public:
    explicit TopK(int32_t n) : n_(static_cast<size_t>(n)) { heap_.reserve(n_); }

    // Return true if a value would enter the heap. Of equal values the earlier stays.
    bool would_accept(float value) const {
        return heap_.size() < n_ || (!heap_.empty() && value > heap_.front().first);
    }

    void add(float value, int32_t id) {
        if (heap_.size() == n_) {
            std::pop_heap(heap_.begin(), heap_.end(), better);
            heap_.pop_back();
        }
        heap_.emplace_back(value, id);
        std::push_heap(heap_.begin(), heap_.end(), better);
    }

    // Best first. *borrowed while it lives*; nothing can be added afterwards.
    const std::vector<std::pair<float, int32_t>> & sorted() {
        std::sort_heap(heap_.begin(), heap_.end(), better);
        return heap_;
    }

  private:
    static bool better(const std::pair<float, int32_t> & a, const std::pair<float, int32_t> & b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    }

    size_t                                 n_;
    std::vector<std::pair<float, int32_t>> heap_;
};

}  // namespace

namespace pyg {

void fail_invalid_logits() {
    throw fail(PYG_ERR_ENGINE, "the model produced logits that are not numbers: the weights are damaged");
}

float maximum(const float * values, int32_t n) {
    float lanes[LANES];
    std::fill_n(lanes, LANES, MINUS_INFINITY);
    for (int32_t i = 0; i + LANES <= n; i += LANES) {
        for (int32_t lane = 0; lane < LANES; lane++) {
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
        }
    }
    float largest = *std::max_element(lanes, lanes + LANES);
    for (int32_t i = n / LANES * LANES; i < n; i++) {
        largest = values[i] > largest ? values[i] : largest;
    }
    return largest;
}

void logprobs_of(const float * row, int32_t n_vocab, int32_t token_id, int32_t n_top, Logprobs & out) {
    TopK   top_k(std::min(n_top, n_vocab));
    float  largest = MINUS_INFINITY;
    double sum     = 0;  // of exp(logit - largest), so far
    for (int32_t first = 0; first < n_vocab; first += BLOCK) {
        const int32_t n             = std::min(BLOCK, n_vocab - first);
        const float   block_largest = maximum(row + first, n);
        if (block_largest > largest) {
            sum *= std::exp(static_cast<double>(largest) - block_largest);
            largest = block_largest;
        }
        if (largest > MINUS_INFINITY) {
            sum += sum_of_exp(row + first, n, largest);
        }
        for (int32_t i = first; top_k.would_accept(block_largest) && i < first + n; i++) {
            const float logit = std::isnan(row[i]) ? MINUS_INFINITY : row[i];
            if (top_k.would_accept(logit)) {
                top_k.add(logit, i);
            }
        }
    }
    if (!std::isfinite(largest)) {
        fail_invalid_logits();
    }
    const double log_sum    = std::log(sum);
    const auto   normalized = [&](float logit) {
        return static_cast<float>((static_cast<double>(logit) - largest) - log_sum);
    };
    out.logprob = normalized(row[token_id]);
    out.top_ids.clear();
    out.top.clear();
    for (const auto & [logit, id] : top_k.sorted()) {
        out.top_ids.push_back(id);
        out.top.push_back(normalized(logit));
    }
}

LogprobTable::LogprobTable(const char * name, int32_t n_top, int32_t n_vocab) : n_top_(std::min(n_top, n_vocab)) {
    if (n_top < 0 || n_top > MAX_LOGPROBS) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be between 0 and %d, not %d", name, MAX_LOGPROBS, n_top);
    }
}

void LogprobTable::append(const Logprobs & one) {
    rows_.logprobs.push_back(one.logprob);
    rows_.top_ids.insert(rows_.top_ids.end(), one.top_ids.begin(), one.top_ids.end());
    rows_.top.insert(rows_.top.end(), one.top.begin(), one.top.end());
}

void LogprobTable::append(const LogprobRows & rows) {
    rows_.logprobs.insert(rows_.logprobs.end(), rows.logprobs.begin(), rows.logprobs.end());
    rows_.top_ids.insert(rows_.top_ids.end(), rows.top_ids.begin(), rows.top_ids.end());
    rows_.top.insert(rows_.top.end(), rows.top.begin(), rows.top.end());
}

void LogprobTable::copy(int32_t first, int32_t n, float * logprobs, int32_t * top_ids, float * top) const {
    if (first < 0 || n < 0 || static_cast<size_t>(first) + static_cast<size_t>(n) > size()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "logprobs %d to %lld were requested, but there are only %zu", first,
                   static_cast<long long>(first) + n - 1, size());
    }
    const ptrdiff_t width = n_top_;
    std::copy_n(rows_.logprobs.begin() + first, n, logprobs);
    std::copy_n(rows_.top_ids.begin() + first * width, n * width, top_ids);
    std::copy_n(rows_.top.begin() + first * width, n * width, top);
}

}  // namespace pyg
