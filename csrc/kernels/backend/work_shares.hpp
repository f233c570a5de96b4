// Partition of consecutive groups of weights into shares for threads.
#pragma once

#include <cstdint>

namespace pyg::kernels {

// Decreasing shares: half of all groups in one share per thread, then half of the rest, and so on. Shares are large
// because the start of each is not prefetched, and small at the end, so that a descheduled thread delays the others
// little.
class WorkShares {
  public:
    WorkShares(int64_t n_groups, int64_t n_threads) : n_groups_(n_groups), n_threads_(n_threads) {
        while (n_groups >> (rounds_ + 1) >= MIN_GROUPS * n_threads) {
            ++rounds_;
        }
    }

    int64_t size() const { return (rounds_ + 1) * n_threads_; }

    // The first group of share `i`, which ends where the next one begins.
    int64_t begin(int64_t i) const {
        const int64_t round = i / n_threads_;
        if (round > rounds_) {
            return n_groups_;
        }
        const int64_t left     = n_groups_ >> round;
        const int64_t of_round = round < rounds_ ? left - (left >> 1) : left;
        return n_groups_ - left + of_round * (i % n_threads_) / n_threads_;
    }

  private:
    static constexpr int64_t MIN_GROUPS = 2;  // groups in a share

    const int64_t n_groups_, n_threads_;
    int           rounds_ = 0;
};

}  // namespace pyg::kernels
