// Prefetch of keys and values, for few queries.
#pragma once

#include "kernels/attention/workspace.hpp"

namespace pyg::kernels {

// Prefetch the rows of cells in order, a share at a time.
class Prefetcher {
  public:
    Prefetcher(const char * start, int64_t stride, int64_t n_bytes, const int32_t * cells, int64_t n)
        : start_(start), stride_(stride), n_lines_(divided(n_bytes, 64)), cells_(cells), n_(n) {}

    // Prefetch up to share `share` of `of`, into L2, so that L1 is not polluted.
    void prefetch_share(int64_t share, int64_t of) {
        for (const int64_t end = n_ * n_lines_ * share / of; done_ < end; ++done_) {
            if (line_ == n_lines_) {
                line_ = 0;
                ++cells_;
            }
            __builtin_prefetch(start_ + *cells_ * stride_ + line_++ * 64, 0, 2);
        }
    }

  private:
    const char *    start_;
    int64_t         stride_, n_lines_;
    const int32_t * cells_;
    int64_t         n_, done_ = 0, line_ = 0;
};

}  // namespace pyg::kernels
