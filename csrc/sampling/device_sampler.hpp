// Greedy sampling on the device that computes the logits, which copies a token id from the device instead of a row of
// logits.
//
// Upstream's own greedy sampler cannot be used: it copies the row as well, and breaks ties differently from device to
// device. This one takes the first maximum, as TokenSampler does. Seeded sampling stays on the CPU: devices sum
// probabilities in another order and precision, so a seed would give other texts.
//
// Switching it on or off makes upstream plan its graphs again, so it waits for a series of greedy steps.
#pragma once

#include "boundary/handles.hpp"
#include "sampling/sampler_cache.hpp"

#include <vector>

namespace pyg {

// Index of the first maximum of each row, [n, n_rows], as a float; NaN if the maximum is not finite. The same on all
// devices.
ggml_tensor * argmax_first(ggml_context * graph, ggml_tensor * rows);

class DeviceSampler {
  public:
    // Never enabled unless `wanted` and the output's device supports argmax_first.
    DeviceSampler(Context & context, bool wanted);

    // Call it before each step; `greedy`: all of its tokens may be sampled here.
    void prepare(bool greedy);
    // True if the step's tokens are sampled on the device.
    bool is_on() const { return !samplers_.empty(); }
    // Disable it for good: the device has too little memory.
    void disable();
    // Let go of the context's llama_context, which is about to be replaced.
    void detach() { switch_off(); }

    // Token sampled from the row of batch index `index`. PYG_ERR_ENGINE if the logits are not numbers.
    int32_t  token(int32_t index);
    uint64_t n_sampled() const { return n_sampled_; }

  private:
    void switch_on();
    void switch_off();

    Context &                  context_;
    bool                       may_      = false;
    int32_t                    n_greedy_ = 0;         // consecutive greedy steps
    int32_t                    patience_;             // greedy steps before it is switched on
    const ggml_tensor *        rows_      = nullptr;  // logits of the graph that is being built
    ggml_tensor *              first_     = nullptr;  // and their argmax
    uint64_t                   n_sampled_ = 0;
    std::vector<UniqueSampler> samplers_;  // one for each sequence; empty: off

    friend struct DeviceSamplerHooks;
};

}  // namespace pyg
