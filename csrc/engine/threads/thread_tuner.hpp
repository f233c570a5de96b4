// Chooses how many threads compute a step, by measuring the steps themselves.
//
// Upstream's compute threads spin while waiting for each other. On an idle machine more threads are faster until memory
// is saturated; when another program wants a core, each barrier waits for the thread that lost its core, and one thread
// fewer is many times faster. So the tuner makes three kinds of trials, each judged by its own steps:
//   explore  in the first steps: bisects for the fewest threads that are about as fast as the best
//   lower    when steps become slow or a compute thread often lacks a core: one step each with n-1, n-2, n-4 ...
//            threads, until they are normal again
//   raise    when a scout has seen a free core: a few steps with more threads; kept if that pays off
// Single tokens, small batches and prompts have different optima (memory or arithmetic), so each class of step sizes is
// tuned separately. This is pure policy: time, steps and the scout come from outside.
#pragma once

#include "engine/threads/idle_core_probe.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

namespace pyg {

// How long a step takes, given its tokens: a power law fitted continuously, which follows slow changes (a growing
// context), so that neither a fuller batch nor a longer text is mistaken for a disturbance.
class StepCost {
  public:
    bool    known() const { return n_ > 0; }
    int32_t n_steps() const { return n_; }

    // Seconds of a step of the usual size.
    double usual_s() const;
    // Logarithm of measured over expected; 0 before the first step.
    double excess(uint32_t n_tokens, double seconds) const;
    // How wrong (a logarithm) the expectation may be because the step's size is far from the usual.
    double doubt(uint32_t n_tokens) const;
    void   learn(uint32_t n_tokens, double seconds);
    // From now on the same work takes exp(log_factor) times as long, as n_steps steps have shown.
    void scale(double log_factor, int32_t n_steps);

  private:
    double  log_tokens_  = 0;    // the usual size of a step,
    double  log_seconds_ = 0;    // what it takes,
    double  slope_       = 0.8;  // and the exponent between them: 0 memory-bound, 1 arithmetic-bound
    int32_t n_           = 0;
};

// The threads for one class of step sizes.
class ThreadChoice {
  public:
    // What one class has found that other classes should know.
    enum class Finding { NONE, FEWER_MUCH_FASTER, LOWERED, MORE_FASTER };

    ThreadChoice(int32_t n_max, bool explores) : n_max_(n_max), n_(n_max), low_(explores ? 0 : n_max) {}

    int32_t n() const { return n_; }                                      // settled
    int32_t next() const { return trial_ == Trial::NONE ? n_ : tried_; }  // for the next step

    // Whether to look for a free core now.
    bool wants_probe(double now) const;
    // Tries more threads if what the scout saw justifies it.
    void    maybe_raise(IdleCoreProbe::Observation observation, double now);
    Finding measured(uint32_t n_tokens, double seconds, double now, bool after_pause);
    void    apply_finding(Finding finding, double now);
    // Steps that took `seconds` gave the calling thread, one of those that compute, this much processor time.
    void add_core_share(double seconds, double own_seconds, double now);

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
    double  sum_     = 0;  // of their excess
    double  score_   = 0;
    double  lost_    = 0;  // seconds beyond what n_ threads would have taken

    int32_t low_;           // exploring: known to be too few
    double  given_up_ = 0;  // how much slower n_ threads are than the best count, a logarithm

    double  slow_      = 0;  // evidence of a disturbance, gathered over steps
    double  slow_sum_  = 0;
    int32_t n_slow_    = 0;
    double  slowdown_  = 0;  // lowering: how much slower steps with n_ threads have become, a logarithm
    double  best_      = 0;
    int32_t n_best_    = 0;
    bool    suspected_ = false;  // other classes found a disturbance, which may have affected every step here

    double share_s_            = 0;     // of steps since the last judgement,
    double share_own_          = 0;     // processor time that a compute thread got in that time,
    double ignore_share_until_ = -1e9;  // and until when a small share is ignored

    int32_t increment_         = 1;
    int32_t n_failures_        = 0;  // raises that did not pay or did not last, in a row
    double  rests_until_       = 0;  // until then, ignore free cores,
    double  waits_until_       = 0;  // and until then, all but one that was taken and is free again
    double  tries_anyway_at_   = 0;  // whatever the scout sees; 0: not decided yet
    int32_t n_failures_before_ = 0;  // the last raises that paid
    double  raised_at_         = -1e9;
    double  invited_until_     = -1e9;  // another class has just found more threads faster
};

// For the computing thread only; no call waits.
class ThreadTuner {
  public:
    using Seconds = std::function<double()>;  // a clock that only goes forward

    // n_max: cores the process may use.
    explicit ThreadTuner(int32_t n_max);
    ThreadTuner(int32_t n_max, Seconds now, std::unique_ptr<IdleCoreProbe> probe);

    // How many threads compute the next step, and how long that step took, including what follows the forward pass.
    int32_t threads(uint32_t n_tokens);
    // `own_seconds` is the processor time that the calling thread, one of those that compute, got in it.
    void measured(uint32_t n_tokens, double seconds, double own_seconds);
    // Instead of measured(), if the step failed or was cut short. One of the two must end every step: the scout works
    // until then.
    void abandoned();

    // The current choice for one token and for prompts.
    int32_t n_threads() const { return choices_.front().n(); }
    int32_t n_threads_batch() const { return choices_.back().n(); }

  private:
    static constexpr std::array<uint32_t, 4> LARGEST = {1, 8, 32, UINT32_MAX};  // step in each class

    ThreadChoice & choice(uint32_t n_tokens);

    Seconds                                  now_;
    std::unique_ptr<IdleCoreProbe>           probe_;                 // none if there is nothing to choose
    int32_t                                  probed_n_threads_ = 0;  // the number of threads it looked beside
    std::array<ThreadChoice, LARGEST.size()> choices_;
    double                                   ended_at_    = -1e9;
    bool                                     after_pause_ = false;
};

}  // namespace pyg
