// Sampling on the device that computes the logits, as far as it can be exact: the device finds the largest logits of
// each row, and only these are copied from it. Greedy requests take the first of the largest. Requests whose chain
// keeps only the likeliest tokens run it on the CPU, on a shortlist; where that does not suffice, on the row, copied on
// demand.
//
// Upstream's own samplers of devices are not used: they copy all rows as well, break ties differently from device to
// device, and draw from probabilities of another order and precision, so that a seed would give other texts.
//
// Switching between these makes upstream plan its graphs again, so it takes a series of steps.
#pragma once

#include "boundary/handles.hpp"
#include "sampling/sampler_cache.hpp"
#include "sampling/token_sampler.hpp"

#include <cmath>
#include <vector>

namespace pyg {

// Index of the first maximum of each row, [n, n_rows], as a float; NaN if the maximum is not finite. The same on all
// devices.
ggml_tensor * argmax_first(ggml_context * graph, ggml_tensor * rows);

// For each row, the `k` largest logits' ids, in any order, and the logits; then the index of the first maximum, as
// argmax_first, the sum of exp(logit - largest), and the index of the row: [2 k + 3, n_rows], floats.
ggml_tensor * summarize_rows(ggml_context * graph, ggml_tensor * rows, int64_t k);

// What a device found in a row of logits. *Borrowed until the next forward pass.*
struct DeviceRow {
    float         first   = NAN;      // of the largest logits, its index
    const float * summary = nullptr;  // of summarize_rows; null: only the first is known
};

class DeviceSampler {
  public:
    // Never enabled unless `wanted` and the output's device supports argmax_first. `ranks`: false if rows that a
    // shortlist does not suffice for could not be sampled.
    DeviceSampler(Context & context, bool wanted, bool ranks = true);

    // Call it before each step, with what its tokens need.
    void prepare(LogitsNeed need);
    // True if rows of logits stay on the device.
    bool is_on() const { return !samplers_.empty(); }
    // Disable it for good: the device has too little memory.
    void disable();
    // Switch it off for some steps, for more each time.
    void postpone();
    // Let go of the context's llama_context, which is about to be replaced.
    void detach();

    // Result of batch index `index` of the last step.
    DeviceRow row(int32_t index);
    // Copy a row of logits from the device to where llama_get_logits_ith finds it. Return false if it is no longer
    // there, because another micro-batch was computed after its own. `n_rows`: of the step.
    bool fetch(int32_t index, const DeviceRow & row, size_t n_rows);

    // Any thread. PYG_ERR_ENGINE if the logits are not numbers.
    int32_t token(const DeviceRow & row) const;
    // Any thread. Return false if the row is needed.
    bool shortlist(const DeviceRow & row, Shortlist & out) const;

    void     count(size_t n) { n_sampled_ += n; }
    uint64_t n_sampled() const { return n_sampled_; }

  private:
    enum class Mode { OFF, LARGEST, LIKELIEST };

    Mode mode_for(LogitsNeed need) const;
    void switch_to(Mode mode);
    void switch_off();

    Context &                  context_;
    const int64_t              k_;                    // candidates of a row
    Mode                       most_    = Mode::OFF;  // what the device supports
    Mode                       mode_    = Mode::OFF;  // of the graphs
    int32_t                    n_steps_ = 0;          // consecutive ones that another mode suits
    int32_t                    patience_;             // how many of these before it is switched on
    const ggml_tensor *        rows_      = nullptr;  // logits of the graph that was built last
    ggml_tensor *              found_     = nullptr;  // and what is computed from them
    uint64_t                   n_sampled_ = 0;
    std::vector<UniqueSampler> samplers_;  // one for each sequence; empty: off

    friend struct DeviceSamplerHooks;
};

}  // namespace pyg
