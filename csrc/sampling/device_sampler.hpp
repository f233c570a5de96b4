// Greedy sampling on the device that computes the logits, so that a token's number leaves it instead of a row of logits
// as long as the vocabulary.
//
// Upstream's own greedy sampler is no use for this: it copies the row as well, and which of several largest logits it
// takes differs from device to device. This one takes the first, as TokenSampler does. Seeded sampling stays on the
// CPU: devices add up probabilities in another order and precision, so that a seed would give other texts.
//
// Switching makes upstream plan its graphs again, so it needs a while in which every request is greedy.
#pragma once

#include "boundary/handles.hpp"
#include "sampling/sampler_cache.hpp"

#include <vector>

namespace pyg {

// For each row of numbers, [n, n_rows], the index of the first of its largest, as a float; NaN if the largest is not a
// finite number. All devices agree.
ggml_tensor * argmax_first(ggml_context * graph, ggml_tensor * rows);

class DeviceSampler {
  public:
    // Never on unless `wanted`, and the device of the output can compute first_maximum.
    DeviceSampler(Context & context, bool wanted);

    // Before each step: whether all of its tokens may be chosen here.
    void prepare(bool greedy);
    // Whether the step's tokens are chosen here.
    bool is_on() const { return !samplers_.empty(); }
    // Off, and never on again: the device has no memory for it.
    void disable();

    // What was chosen for the row of batch index `index`. PYG_ERR_ENGINE if the logits are not numbers.
    int32_t  token(int32_t index);
    uint64_t n_sampled() const { return n_sampled_; }

  private:
    void switch_on();
    void switch_off();

    Context &                  context_;
    bool                       may_      = false;
    int32_t                    n_greedy_ = 0;         // steps in a row
    int32_t                    patience_;             // as many of those before it is worth switching on
    const ggml_tensor *        rows_      = nullptr;  // those of the graph being built,
    ggml_tensor *              first_     = nullptr;  // and what was chosen from them
    uint64_t                   n_sampled_ = 0;
    std::vector<UniqueSampler> samplers_;  // one for each sequence; none: off

    friend struct DeviceSamplerHooks;
};

}  // namespace pyg
