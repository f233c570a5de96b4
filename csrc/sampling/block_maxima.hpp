// Block maxima of a row of logits, from which its largest logits are found.
#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

namespace pyg {

// A few of a row's logits, the largest ones.
struct Shortlist {
    std::vector<llama_token_data> candidates;  // in order of id
    float                         bound = 0;   // no other logit of the row is larger
    float                         sum   = 0;   // of exp(logit - largest) over the row, for top_p only
};

// Finds the largest logits of a row in one pass over it, and in parts of it after that.
class BlockMaxima {
  public:
    // Scan a row, *borrowed until the next scan*. Return false if a logit is NaN or +infinity, or the logits are so
    // large that their sum may overflow.
    bool scan(const float * row, int32_t n);

    float largest() const { return largest_; }  // ignores NaN
    // Index of the first of the largest logits; -1 if none is larger than -infinity.
    int32_t first_of_largest() const;

    // At least `n` logits are as large as the result; -infinity if there are too few blocks to tell.
    float threshold(size_t n);
    // Collect the logits of at least `threshold`.
    void collect(float threshold, Shortlist & out);
    // Sum of exp(logit / temperature - largest / temperature) in the order and precision in which upstream's softmax
    // adds: the same bits.
    float sum_of_exp(float temperature) const;

  private:
    int32_t first(size_t block) const { return static_cast<int32_t>(block) * block_; }
    int32_t size(size_t block) const;

    const float *      row_     = nullptr;
    int32_t            n_       = 0;
    int32_t            block_   = 0;  // logits of a block; the last may have fewer
    float              largest_ = 0;
    std::vector<float> maxima_;

    // Scratch of threshold() and collect().
    std::vector<float>   groups_;
    std::vector<int32_t> indices_;
};

}  // namespace pyg
