#include "sampling/shortlist.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

// Candidates collected in addition to those asked for where penalties may lower some of the likeliest.
constexpr size_t N_LOWERED = 64;
constexpr float  LOWERED   = 4;

// Candidates of top_p: most rows need no more than the first number, few more than the second.
constexpr size_t N_PROBABLE = 48, N_PROBABLE_MAX = 220;
constexpr size_t N_SORTED = 32;  // of these at a time

bool is_likelier(const llama_token_data & a, const llama_token_data & b) { return a.logit > b.logit; }

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

}  // namespace

namespace pyg {

Truncation::Truncation(llama_sampler * chain, const pyg_sampling & options)
    : min_keep_(static_cast<size_t>(options.min_keep)) {
    for (int32_t i = 0; i < llama_sampler_chain_n(chain); i++) {
        const char * name = llama_sampler_name(llama_sampler_chain_get(chain, i));
        const auto   is   = [&](const char * other) { return std::strcmp(name, other) == 0; };
        const bool   lowers =
            options.repeat_penalty >= 1 && options.frequency_penalty >= 0 && options.presence_penalty >= 0;
        index_ = i;
        if (is("dry") || (is("penalties") && lowers)) {
            has_changes_ = true;
        } else if (is("temp-ext") && options.dynatemp_range == 0 && temperature_ == 1) {
            temperature_ = options.temperature;
        } else {
            if (is("greedy")) {
                kind_ = Kind::GREEDY;
            } else if (is("top-k")) {
                k_    = static_cast<size_t>(std::max(options.top_k, options.min_keep));
                kind_ = Kind::TOP_K;
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
    const auto try_with_largest = [&](size_t n) {
        const float threshold = has_changes_ ? row.threshold(n + N_LOWERED) : -INF;
        return try_with(threshold > -INF ? threshold : row.threshold(n));
    };
    switch (kind_) {
    case Kind::GREEDY:
        return try_with_largest(1);
    case Kind::TOP_K:
        return try_with_largest(k_);
    case Kind::TOP_P:
        shortlist.sum = row.sum_of_exp(temperature_);
        return try_with(row.threshold(N_PROBABLE)) || try_with(row.threshold(N_PROBABLE_MAX));
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

// Return true if the sampler would keep the same candidates of the whole row, in the same order. `bound`: no other
// logit of the row is larger.
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

// Upstream's top_p, which would normalise by the sum over the candidates that it gets. Sorts a few more at a time.
bool Truncation::keeps_probable(llama_token_data_array & candidates, float bound, float sum) const {
    if (!std::isfinite(sum)) {
        return false;
    }
    size_t n_sorted   = 0;
    float  cumulative = 0;
    for (size_t i = 0; i < candidates.size; i++) {
        if (i + 1 >= n_sorted) {
            n_sorted += N_SORTED;
            sort_likeliest(candidates, n_sorted);
        }
        if (!has_its_place(candidates, i, bound)) {
            return false;
        }
        llama_token_data & each = candidates.data[i];
        each.p                  = expf(each.logit - candidates.data[0].logit) / sum;
        cumulative += each.p;
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
    const float least = largest + logf(p_);
    const auto n_kept = std::count_if<const llama_token_data *>(candidates.data, end,
                                                                [&](const auto & each) { return each.logit >= least; });
    return bound < least && n_kept > 0 && static_cast<size_t>(n_kept) >= min_keep_;
}

}  // namespace pyg
