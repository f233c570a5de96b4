// How threads share groups of weights that follow one another in memory.
#pragma once

#include <cstdint>

namespace pyg::kernels {

// Shares for one thread after the other: half of all groups in one share for each thread, then half of the rest, and so
// on. Large ones because memory that has not been asked for ahead comes late, as at the beginning of each; small ones
// at the end, lest the others wait for a thread that another process has kept from its work.
class Shares {
  public:
    Shares(int64_t n_groups, int64_t n_threads) : n_groups_(n_groups), n_threads_(n_threads) {
        while (n_groups >> (rounds_ + 1) >= LEAST * n_threads) {
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
    static constexpr int64_t LEAST = 2;  // groups in a share

    const int64_t n_groups_, n_threads_;
    int           rounds_ = 0;
};

}  // namespace pyg::kernels
