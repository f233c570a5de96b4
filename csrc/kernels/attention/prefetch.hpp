// What makes memory wait less for few queries.
#pragma once

#include "kernels/attention/workspace.hpp"

#ifdef PYG_FLOATS8

namespace pyg::kernels {

// Asks the memory for rows of cells, from the first to the last, a share at a time.
class Ahead {
  public:
    Ahead(const char * start, int64_t stride, int64_t n_bytes, const int32_t * cells, int64_t n)
        : start_(start), stride_(stride), n_lines_(divided(n_bytes, 64)), cells_(cells), n_(n) {}

    // Up to share `share` of so many. They get no nearer than the second cache, where they do not stand in the way.
    void go(int64_t share, int64_t of) {
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
#endif
