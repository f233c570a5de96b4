// Tuner for the number of compute threads of a step, which measures the steps themselves.
//
// Upstream's compute threads spin while waiting for each other. On an idle machine more threads are faster until memory
// bandwidth is saturated; when another program takes a core, each barrier waits for the thread that lost it, and one
// thread fewer is many times faster. The tuner runs three kinds of trials, each judged by its own steps:
//   explore  in the first steps: bisect for the fewest threads that are about as fast as the best
//   lower    when steps become slow or a compute thread often lacks a core: one step each with n-1, n-2, n-4 ...
//            threads, until step times are normal again
//   raise    when the probe has found an idle core: a few steps with more threads, which stay if that is faster
// Single tokens, small batches and prefill have different optima (memory-bound or compute-bound), so each class of step
// sizes is tuned separately. Pure policy: clock, step times and probe are passed in.
#pragma once

#include "engine/threads/idle_core_probe.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

namespace pyg {

// Expected duration of a step, given its number of tokens: a power law fitted continuously, so that neither a fuller
// batch nor a longer context is mistaken for a disturbance.
class StepCost {
  public:
    bool    known() const { return n_ > 0; }
    int32_t n_steps() const { return n_; }

    // Seconds of a step of the usual size.
    double usual_s() const;
    // Logarithm of measured over expected duration; 0 before the first step.
    double excess(uint32_t n_tokens, double seconds) const;
    // Uncertainty of the expectation (a logarithm), because the step's size is far from the usual one.
    double doubt(uint32_t n_tokens) const;
    void   learn(uint32_t n_tokens, double seconds);
    // Multiply the expected duration by exp(log_factor), as measured in n_steps steps.
    void scale(double log_factor, int32_t n_steps);

  private:
    double  log_tokens_  = 0;    // usual size of a step
    double  log_seconds_ = 0;    // its duration
    double  slope_       = 0.8;  // exponent between the two: 0 memory-bound, 1 compute-bound
    int32_t n_           = 0;
};

// Number of threads for one class of step sizes.
class ThreadChoice {
  public:
    // Findings that concern other classes of step sizes as well.
    enum class Finding { NONE, FEWER_MUCH_FASTER, LOWERED, MORE_FASTER };

    ThreadChoice(int32_t n_max, bool explores) : n_max_(n_max), n_(n_max), low_(explores ? 0 : n_max) {}

    int32_t n_max() const { return n_max_; }
    int32_t n() const { return n_; }  // settled number of threads
    // threads for the next step, which may be a trial
    int32_t next() const { return trial_ == Trial::NONE ? n_ : tried_; }

    // Return true if the probe should look for an idle core now.
    bool wants_probe(double now) const;
    // Start a trial with more threads if the observation justifies it.
    void    maybe_raise(IdleCoreProbe::Observation observation, double now);
    Finding measured(uint32_t n_tokens, double seconds, double now, bool after_pause);
    void    apply_finding(Finding finding, double now);
    // Record how much CPU time the calling thread, one of the compute threads, got in steps of `seconds`. Return true
    // if it often lacked a core.
    bool add_core_share(double seconds, double own_seconds, double now);
    // Before the first step: start with at most n threads, because other programs use the cores. Idle cores are found
    // later, as after any disturbance.
    void start_with(int32_t n);
    bool has_started() const { return cost_.known() || warm_; }

  private:
    enum class Trial { NONE, EXPLORE, LOWER, RAISE };

    void    settled(uint32_t n_tokens, double seconds, double excess);
    Finding exploring(double excess, double lost);
    Finding raising(double excess, double lost, double now);
    Finding lowering(double excess, double now);

    enum class Verdict { NONE, BETTER, WORSE };

    void    start(Trial trial, int32_t n);
    void    start_lowering(double log_slowdown);
    void    adopt(int32_t n, double log_factor, int32_t n_steps);
    Verdict verdict(double excess, double lost, double goal);
    bool    explored() const;
    int32_t first_increment() const;
    bool    ready_to_explore(double seconds) const;

    int32_t  n_max_;
    int32_t  n_;
    StepCost cost_;  // with n_ threads
    bool     warm_ = false;

    Trial   trial_   = Trial::NONE;
    int32_t tried_   = 0;
    int32_t n_steps_ = 0;  // of the trial
    double  sum_     = 0;  // of the trial's excesses
    double  score_   = 0;
    double  lost_    = 0;  // seconds more than n_ threads would have taken

    int32_t low_;           // exploring: known to be too few
    double  given_up_ = 0;  // slowdown of n_ threads against the best number, a logarithm

    double  slow_      = 0;  // accumulated evidence of a disturbance
    double  slow_sum_  = 0;
    int32_t n_slow_    = 0;
    double  slowdown_  = 0;  // lowering: slowdown of steps with n_ threads, a logarithm
    double  best_      = 0;
    int32_t n_best_    = 0;
    bool    suspected_ = false;  // another class found a disturbance, which may have affected all steps of this one

    double share_s_            = 0;     // duration of the steps since the last check
    double share_own_          = 0;     // CPU time of a compute thread in those steps
    double ignore_share_until_ = -1e9;  // until then, ignore a low share of CPU time

    int32_t increment_         = 1;
    int32_t n_failures_        = 0;  // consecutive raises that were not faster or did not last
    double  rests_until_       = 0;  // until then, ignore idle cores
    double  waits_until_       = 0;  // until then, ignore idle cores except one that was busy before
    double  tries_anyway_at_   = 0;  // raise then without an idle core; 0: not scheduled
    int32_t n_failures_before_ = 0;  // before the last successful raise
    double  raised_at_         = -1e9;
    double  invited_until_     = -1e9;  // until then, follow another class that found more threads faster
};

// Used by the engine's thread only. Nothing blocks.
class ThreadTuner {
  public:
    using Seconds = std::function<double()>;  // a monotonic clock

    // n_max: cores available to the process.
    explicit ThreadTuner(int32_t n_max);
    ThreadTuner(int32_t n_max, Seconds now, std::shared_ptr<IdleCoreProbe> probe);

    // Return the number of threads for the next step.
    int32_t threads(uint32_t n_tokens);
    // Record the duration of the step, including sampling. `own_seconds`: CPU time of the calling thread, one of the
    // compute threads.
    void measured(uint32_t n_tokens, double seconds, double own_seconds);
    // Call it instead of measured() if the step failed or was aborted. Every step must end with one of the two, because
    // the probe runs until then.
    void abandoned();

    // Current numbers of threads for one token and for prefill.
    int32_t n_threads() const { return choices_.front().n(); }
    int32_t n_threads_batch() const { return choices_.back().n(); }

  private:
    static constexpr std::array<uint32_t, 4> LARGEST = {1, 8, 32, UINT32_MAX};  // largest step of each class

    ThreadChoice & choice(uint32_t n_tokens);
    int32_t        n_idle_cores(int32_t n_used, double share) const;

    Seconds                                  now_;
    std::shared_ptr<IdleCoreProbe>           probe_;                 // null if there is nothing to tune
    int32_t                                  probed_n_threads_ = 0;  // number of threads during the last observation
    std::array<ThreadChoice, LARGEST.size()> choices_;
    double                                   ended_at_    = -1e9;
    bool                                     after_pause_ = false;
};

}  // namespace pyg
