// Layout of the KV cache: when to divide it into streams, one for each sequence, and when to unify it.
//
// In a unified KV cache a sequence can use all cells, but attention reads the cells of all sequences for each of them,
// and the mask that excludes the others grows with the square of their number: with 32 sequences a step takes a tenth
// longer on an H200, and with 128 of 256 tokens the host alone takes 7 ms longer. In a KV cache of streams a sequence
// is limited to its share of the cells. A change of the layout computes all running requests again, so it has to pay.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pyg {

class KvLayout {
  public:
    // What the layout depends on, before a step.
    struct Load {
        size_t   n_requests;  // running, or waiting for a free slot
        uint32_t n_longest;   // tokens of the longest of them
        uint64_t n_computed;  // tokens in the KV cache of all running requests
    };

    // `n_per_stream`: cells of a stream; 0: never divide the KV cache. `n_requests`: fewest that make it worth it.
    KvLayout(uint32_t n_per_stream, size_t n_requests) : n_per_stream_(n_per_stream), n_requests_(n_requests) {}

    uint32_t n_per_stream() const { return n_per_stream_; }

    // Return the cells of a stream in the layout for the next step; 0: unified. Call it before each step, with the
    // current layout's.
    uint32_t next(uint32_t current, const Load & load) {
        if (current > 0) {
            return load.n_longest <= current ? current : unify();
        }
        const bool fits = load.n_longest + n_per_stream_ / MARGIN <= n_per_stream_;
        n_suitable_     = fits && load.n_requests >= n_requests_ ? n_suitable_ + 1 : 0;
        return n_suitable_ > std::max(patience_, steps_to_pay(load)) ? n_per_stream_ : 0;
    }

    // Never divide it again: there is too little memory.
    void disable() { n_per_stream_ = 0; }

  private:
    static constexpr uint32_t MARGIN = 8;  // of its cells a stream keeps one in so many free when a request starts

    // A request that outgrows its stream costs a change of the layout: wait for so many steps before the next,
    // twice as many each time.
    static constexpr uint64_t PATIENCE_MIN = 64, PATIENCE_MAX = 4096;

    // In a step of 32 requests, streams save the time of about a dozen prompt tokens (Llama 3.1 8B on an H200), and
    // with twice as many requests four times that, if it is the mask. Return in how many steps they save the time to
    // compute all running requests again.
    static uint64_t steps_to_pay(const Load & load) {
        constexpr uint64_t REQUESTS_OF_A_TOKEN = 8;
        const uint64_t     ratio               = std::max<uint64_t>(load.n_requests / REQUESTS_OF_A_TOKEN, 1);
        return load.n_computed / (ratio * ratio);
    }

    uint32_t unify() {
        patience_   = std::clamp(2 * patience_, PATIENCE_MIN, PATIENCE_MAX);
        n_suitable_ = 0;
        return 0;
    }

    uint32_t n_per_stream_;
    size_t   n_requests_;
    uint64_t n_suitable_ = 0;  // steps in succession that streams would suit
    uint64_t patience_   = 0;  // such steps before the KV cache is divided
};

}  // namespace pyg
