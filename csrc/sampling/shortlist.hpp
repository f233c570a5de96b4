// Shortlists: the few candidates of a row of logits from which a sampler chain chooses the same token, with the same
// probabilities, as from the whole row.
//
// A vocabulary has a hundred thousand tokens, and a chain with top_k, top_p or min_p keeps some dozens of them.
// Sorting, filtering and exponentiating only these gives the same bits, as long as no tie makes the order of a whole
// row's candidates depend on how upstream sorts them.
#pragma once

#include "pyggml.h"
#include "sampling/block_maxima.hpp"

namespace pyg {

// The first sampler of a chain that keeps only the likeliest candidates, and what comes before it.
class Truncation {
  public:
    Truncation() = default;  // of no chain: needs every logit
    // `options` are those that the chain was made from.
    Truncation(llama_sampler * chain, const pyg_sampling & options);

    // True if a shortlist can replace the row.
    bool bounds_candidates() const { return kind_ != Kind::NONE; }
    // True if the chain keeps a few of the candidates, not only chooses the largest.
    bool truncates() const { return bounds_candidates() && kind_ != Kind::GREEDY; }
    // True if Shortlist::sum is used.
    bool needs_sum() const { return kind_ == Kind::TOP_P; }
    // True if the candidates of a shortlist may be in any order.
    bool sorts() const { return kind_ == Kind::TOP_K || kind_ == Kind::TOP_P; }

    // Run the chain on a row, or on a shortlist of one. Return false if that takes the whole row: then nothing has
    // changed but `shortlist`. `out` refers to its candidates, with the selected one.
    bool apply(llama_sampler * chain, BlockMaxima & row, Shortlist & shortlist, llama_token_data_array & out) const;
    bool apply(llama_sampler * chain, Shortlist & shortlist, llama_token_data_array & out) const;

  private:
    enum class Kind { NONE, GREEDY, TOP_K, TOP_P, MIN_P };

    bool suffices(llama_token_data_array & candidates, float bound, float sum) const;
    bool keeps_largest(llama_token_data_array & candidates, size_t n, float bound) const;
    bool keeps_probable(llama_token_data_array & candidates, float bound, float sum) const;
    bool keeps_above_minimum(const llama_token_data_array & candidates, float bound) const;

    Kind    kind_        = Kind::NONE;
    int32_t index_       = 0;      // in the chain
    float   temperature_ = 1;      // by which logits are divided before
    bool    has_changes_ = false;  // logits are lowered before
    size_t  k_           = 0;      // of top_k
    size_t  min_keep_    = 0;
    float   p_           = 0;  // of top_p or min_p
};

}  // namespace pyg
