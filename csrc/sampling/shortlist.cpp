#include "sampling/shortlist.hpp"

#include "sampling/logprobs.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace {

constexpr float   INF   = std::numeric_limits<float>::infinity();
constexpr int32_t LANES = 16;

// Blocks of a row: enough to find several hundred large logits, few enough to sort their maxima in microseconds.
constexpr int32_t N_BLOCKS = 512;

// Largest top_k; with more candidates, ties become likely.
constexpr size_t MAX_K = 512;

// Candidates collected in addition to those asked for where penalties may lower some of the likeliest.
constexpr size_t N_LOWERED = 64;
constexpr float  LOWERED   = 4;

// Candidates of top_p: first these, then as many as the blocks can tell.
constexpr size_t N_PROBABLE = 48;

bool is_likelier(const llama_token_data & a, const llama_token_data & b) { return a.logit > b.logit; }

// Return true if all of `n` values are less than +infinity, which NaN is not.
bool all_usable(const float * values, int32_t n) {
    int32_t unusable[LANES] = {};
    for (int32_t i = 0; i + LANES <= n; i += LANES) {
        for (int32_t lane = 0; lane < LANES; lane++) {
            unusable[lane] |= !(values[i + lane] < INF);
        }
    }
    bool result = std::all_of(unusable, unusable + LANES, [](int32_t each) { return each == 0; });
    for (int32_t i = n / LANES * LANES; i < n; i++) {
        result = result && values[i] < INF;
    }
    return result;
}

// Sort the `n` likeliest candidates to the front, and the next one.
void sort_likeliest(llama_token_data_array & candidates, size_t n) {
    const size_t n_sorted = std::min(n + 1, candidates.size);
    std::partial_sort(candidates.data, candidates.data + n_sorted, candidates.data + candidates.size, is_likelier);
    candidates.sorted = true;
}

// Return true if a sorted candidate has its place whatever sorts the row: no other is equal. `bound`: no logit that is
// not a candidate is larger.
bool has_its_place(const llama_token_data_array & candidates, size_t index, float bound) {
    const float next = index + 1 < candidates.size ? candidates.data[index + 1].logit : bound;
    return candidates.data[index].logit > std::max(next, bound);
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
    row_     = row;
    n_       = n;
    block_   = ((n + N_BLOCKS - 1) / N_BLOCKS + LANES - 1) / LANES * LANES;
    largest_ = -INF;
    maxima_.clear();
    for (int32_t first = 0; first < n; first += block_) {
        const int32_t n_block = std::min(block_, n - first);
        if (!all_usable(row + first, n_block)) {
            return false;
        }
        maxima_.push_back(maximum(row + first, n_block));
        largest_ = std::max(largest_, maxima_.back());
    }
    return largest_ > -INF;
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

void BlockMaxima::collect(float threshold, Shortlist & out) const {
    out.candidates.clear();
    out.bound = std::nextafter(threshold, -INF);
    for (size_t block = 0; block < maxima_.size(); block++) {
        if (maxima_[block] >= threshold) {
            const int32_t first = static_cast<int32_t>(block) * block_;
            const int32_t last  = std::min(first + block_, n_);
            for (int32_t id = first; id < last; id++) {
                if (row_[id] >= threshold) {
                    out.candidates.push_back({id, row_[id], 0});
                }
            }
        }
    }
}

// Leaves out terms that are lost in rounding: those of less than half of the last bit of the sum so far. A term of less
// than sum * 2^-25 is one of them, and in a typical row most are.
float BlockMaxima::sum_of_exp(float temperature) const {
    constexpr float    MARGIN   = 0.01F;  // for the errors of the logarithm, of exp and of the limit below
    const float        LAST_BIT = std::log(0x1p-25F) - MARGIN;
    const float        largest  = largest_ / temperature;
    float              sum      = 0;
    float              least    = -INF;  // lower logits change nothing
    std::vector<float> logits(static_cast<size_t>(block_));
    for (size_t block = 0; block < maxima_.size(); block++) {
        if (maxima_[block] < least) {
            continue;
        }
        const int32_t first = static_cast<int32_t>(block) * block_;
        const int32_t n     = filter(row_ + first, std::min(block_, n_ - first), least, logits.data());
        for (int32_t i = 0; i < n; i++) {
            sum += expf(logits[static_cast<size_t>(i)] / temperature - largest);
        }
        const float limit = (largest + std::log(sum) + LAST_BIT) * temperature;
        least             = limit - std::abs(limit) * FLT_EPSILON * 8;
    }
    return sum;
}

Truncation::Truncation(llama_sampler * chain, const pyg_sampling & options)
    : min_keep_(static_cast<size_t>(options.min_keep)) {
    for (int32_t i = 0; i < llama_sampler_chain_n(chain); i++) {
        const char * name = llama_sampler_name(llama_sampler_chain_get(chain, i));
        const auto   is   = [&](const char * other) { return std::strcmp(name, other) == 0; };
        const bool lowers = options.repeat_penalty >= 1 && options.frequency_penalty >= 0 && options.presence_penalty >= 0;
        index_            = i;
        if (is("dry") || (is("penalties") && lowers)) {
            has_changes_ = true;
        } else if (is("temp-ext") && options.dynatemp_range == 0 && temperature_ == 1) {
            temperature_ = options.temperature;
        } else {
            if (is("greedy")) {
                kind_ = Kind::GREEDY;
            } else if (is("top-k")) {
                k_    = static_cast<size_t>(std::max(options.top_k, options.min_keep));
                kind_ = k_ <= MAX_K ? Kind::TOP_K : Kind::NONE;
            } else if (is("top-p") && !has_changes_) {  // they would change the sum
                p_    = options.top_p;
                kind_ = Kind::TOP_P;
            } else if (is("min-p")) {
                p_    = options.min_p;
                kind_ = Kind::MIN_P;
            }
            return;
        }
    }
}

bool Truncation::apply(llama_sampler * chain, BlockMaxima & row, Shortlist & shortlist,
                       llama_token_data_array & out) const {
    const auto try_with = [&](float threshold) {
        if (threshold == -INF) {
            return false;
        }
        row.collect(threshold, shortlist);
        return apply(chain, shortlist, out);
    };
    const size_t n_more = has_changes_ ? N_LOWERED : 0;
    switch (kind_) {
    case Kind::GREEDY:
        return try_with(row.threshold(1 + n_more));
    case Kind::TOP_K:
        return try_with(row.threshold(k_ + n_more));
    case Kind::TOP_P:
        shortlist.sum = row.sum_of_exp(temperature_);
        return try_with(row.threshold(N_PROBABLE)) || try_with(row.threshold(N_BLOCKS * 9 / 10));
    case Kind::MIN_P: {
        const bool  is_exact = temperature_ == 1 && !has_changes_;
        const float least    = row.largest() + temperature_ * logf(p_);
        return try_with(is_exact ? least : least - LOWERED);
    }
    default:
        return false;
    }
}

bool Truncation::apply(llama_sampler * chain, Shortlist & shortlist, llama_token_data_array & out) const {
    out = {shortlist.candidates.data(), shortlist.candidates.size(), -1, false};
    if (out.size == 0) {
        return false;
    }
    for (int32_t i = 0; i < index_; i++) {
        llama_sampler_apply(llama_sampler_chain_get(chain, i), &out);
    }
    if (!suffices(out, shortlist.bound / temperature_, shortlist.sum)) {
        return false;
    }
    for (int32_t i = kind_ == Kind::TOP_P ? index_ + 1 : index_; i < llama_sampler_chain_n(chain); i++) {
        llama_sampler_apply(llama_sampler_chain_get(chain, i), &out);
    }
    return true;
}

// Return true if the sampler would keep the same candidates of the whole row, in the same order. `bound`: no other logit
// of the row is larger.
bool Truncation::suffices(llama_token_data_array & candidates, float bound, float sum) const {
    switch (kind_) {
    case Kind::GREEDY:
        return std::any_of(candidates.data, candidates.data + candidates.size,
                           [&](const llama_token_data & each) { return each.logit > bound; });
    case Kind::TOP_K:
        return keeps_largest(candidates, k_, bound);
    case Kind::TOP_P:
        return keeps_probable(candidates, bound, sum);
    case Kind::MIN_P:
        return keeps_above_minimum(candidates, bound);
    default:
        return false;
    }
}

// Sorts the candidates, so that upstream's top_k has only to drop those after the n-th.
bool Truncation::keeps_largest(llama_token_data_array & candidates, size_t n, float bound) const {
    if (candidates.size < n) {
        return false;
    }
    sort_likeliest(candidates, n);
    for (size_t i = 0; i < n; i++) {
        if (!has_its_place(candidates, i, bound)) {
            return false;
        }
    }
    return true;
}

// Upstream's top_p, which would normalise by the sum over the candidates that it gets.
bool Truncation::keeps_probable(llama_token_data_array & candidates, float bound, float sum) const {
    if (!std::isfinite(sum)) {
        return false;
    }
    sort_likeliest(candidates, candidates.size);
    const float largest    = candidates.data[0].logit;
    float       cumulative = 0;
    for (size_t i = 0; i < candidates.size && has_its_place(candidates, i, bound); i++) {
        candidates.data[i].p = expf(candidates.data[i].logit - largest) / sum;
        cumulative += candidates.data[i].p;
        if (cumulative >= p_ && i + 1 >= min_keep_) {
            candidates.size = i + 1;
            return true;
        }
    }
    return false;
}

// The order of id, in which upstream's min_p keeps them, is that of the whole row, also with ties.
bool Truncation::keeps_above_minimum(const llama_token_data_array & candidates, float bound) const {
    const llama_token_data * const end     = candidates.data + candidates.size;
    float                          largest = -FLT_MAX;
    for (const llama_token_data * each = candidates.data; each != end; each++) {
        largest = std::max(largest, each->logit);
    }
    const float least  = largest + logf(p_);
    const auto  n_kept = std::count_if<const llama_token_data *>(candidates.data, end,
                                                                 [&](const auto & each) { return each.logit >= least; });
    return bound < least && n_kept > 0 && static_cast<size_t>(n_kept) >= min_keep_;
}

}  // namespace pyg
