#include "engine/threads/thread_tuner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace {

// All differences are logarithms of measured over expected duration.
constexpr double NORMAL           = 0.18;   // 1.2: similar steps differ by a few percent, not more
constexpr double MUCH             = 0.22;   // 1.25
constexpr double SIZE_DOUBT       = 0.5;    // of an exponent between 0 and 1
constexpr double STEP_IS_EVIDENCE = 0.28;   // limit per step: a single slow step is an outlier
constexpr double TRIGGER          = 0.3;    // evidence that starts lowering: two steps at 1.4
constexpr double FEWER_PAYS       = -0.1;   // lowering must gain this much
constexpr double MORE_PAYS        = -0.02;  // raising must gain this much
constexpr double TIE              = 0.015;  // exploring may lose this much against the fastest number

// Sequential test of a trial's mean. With 3% noise around a mean 2% off the goal, one in 200 trials is misjudged; most
// trials take 3 to 8 steps.
constexpr double  DECIDED    = 0.12;
constexpr double  STEP_SAYS  = 0.06;  // limit per step: one outlier must not decide
constexpr int32_t MAX_STEPS  = 40;
constexpr double  PATIENCE_S = 0.02;  // time a trial may lose before one slow step ends it

// Steps measured before a trial; exploring needs fewer if they take this long.
constexpr int32_t RAISE_BASELINE     = 3;
constexpr int32_t EXPLORE_BASELINE   = 8;
constexpr double  EXPLORE_BASELINE_S = 0.5;

constexpr double PAUSE_S      = 0.05;  // after a pause, caches are cold, clocks are low and compute threads sleep,
constexpr double WAKE_UP_S    = 0.01;  // which adds this much to the next step
constexpr double CALM_S       = 0.3;   // a program that uses the CPU often pauses first to read its files
constexpr double LASTING_S    = 3;     // a raise undone sooner counts as a failure
constexpr double NEWS_LASTS_S = 1;

// After failed raises, wait longer before each new one. A core that was busy and is idle again shortens the wait to
// less than a second, so that the end of a disturbance is noticed soon.
constexpr int32_t MAX_FAILURES  = 10;
constexpr double  WAIT_PER_LOST = 10;  // raising costs at most a tenth of the time

double  wait_s(int32_t n_failures) { return n_failures ? 0.05 * std::exp2(n_failures - 1) : 0; }
double  rest_s(int32_t n_failures) { return std::min(wait_s(n_failures), 0.4); }
int32_t windows_needed(int32_t n_failures) { return std::min(2 << n_failures, 20); }

// Steps in which a compute thread often lacks a core count as disturbed, even if no step was ever faster. The share is
// measured over this long, because the system switches threads every few milliseconds. If fewer threads did not help,
// it is ignored for a while.
constexpr double SHARE_OVER_S   = 0.02;
constexpr double GOOD_SHARE     = 0.85;
constexpr double SHARE_AGAIN_S  = 5;
constexpr double SHARE_PER_STEP = 30;

// The probe can miss idle cores: it also yields to other low-priority programs, and some systems confine such threads
// to a few slow cores. So the tuner raises now and then without an observation.
constexpr double BLIND_S        = 30;
constexpr double BLIND_PER_LOST = 100;
constexpr double BLIND_MAY_TAKE = 10;  // in usual steps: the worst case of one raise

double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

namespace pyg {

double StepCost::excess(uint32_t n_tokens, double seconds) const {
    return known() ? std::log(seconds) - log_seconds_ - slope_ * (std::log(n_tokens) - log_tokens_) : 0;
}

double StepCost::usual_s() const { return std::exp(log_seconds_); }

double StepCost::doubt(uint32_t n_tokens) const { return SIZE_DOUBT * std::abs(std::log(n_tokens) - log_tokens_); }

void StepCost::learn(uint32_t n_tokens, double seconds) {
    if (!known()) {
        log_tokens_  = std::log(n_tokens);
        log_seconds_ = std::log(seconds);
    } else {
        const double distance = std::log(n_tokens) - log_tokens_;
        const double error    = excess(n_tokens, seconds);
        const double rate     = std::max(1.0 / (n_ + 1), error < -NORMAL ? 0.3 : 0.1);
        if (std::abs(error) < SIZE_DOUBT) {
            slope_ = std::clamp(slope_ + 0.3 * error * distance / (distance * distance + 0.1), 0.0, 1.2);
        }
        log_tokens_ += rate * distance;
        log_seconds_ += rate * (slope_ * distance + std::min(error, NORMAL));  // do not learn disturbances as normal
    }
    n_++;
}

void StepCost::scale(double log_factor, int32_t n_steps) {
    log_seconds_ += log_factor;
    n_ = n_steps;
}

bool ThreadChoice::wants_probe(double now) const {
    return trial_ == Trial::NONE && n_ < n_max_ && cost_.known() && explored() && now >= rests_until_;
}

int32_t ThreadChoice::first_increment() const { return std::max(1, n_ / 4); }

void ThreadChoice::maybe_raise(IdleCoreProbe::Observation observation, double now) {
    if (!wants_probe(now) || cost_.n_steps() < RAISE_BASELINE) {
        return;
    }
    if (tries_anyway_at_ == 0) {
        tries_anyway_at_ = now + std::max(BLIND_S, BLIND_PER_LOST * BLIND_MAY_TAKE * cost_.usual_s());
    }
    const bool free =
        observation.n_free >= windows_needed(n_failures_) && (observation.was_taken || now >= waits_until_);
    if (free || now < invited_until_ || now >= tries_anyway_at_) {
        invited_until_ = now;
        increment_     = observation.was_taken ? first_increment() : increment_;
        start(Trial::RAISE, std::min(n_ + increment_, n_max_));
    }
}

ThreadChoice::Finding ThreadChoice::measured(uint32_t n_tokens, double seconds, double now, bool after_pause) {
    if (!std::exchange(warm_, true) && !suspected_) {
        return Finding::NONE;
    }
    const double excess = cost_.excess(n_tokens, seconds);
    const double lost   = seconds - seconds * std::exp(-excess);
    if (after_pause && lost > 0 && lost < WAKE_UP_S) {
        return Finding::NONE;
    }
    switch (trial_) {
    case Trial::NONE:
        settled(n_tokens, seconds, excess);
        return Finding::NONE;
    case Trial::EXPLORE:
        return exploring(excess, lost);
    case Trial::RAISE:
        return raising(excess, lost, now);
    case Trial::LOWER:
        return lowering(excess, now);
    }
    return Finding::NONE;
}

void ThreadChoice::apply_finding(Finding finding, double now) {
    if (finding == Finding::MORE_FASTER) {
        invited_until_ = now + NEWS_LASTS_S;
    } else if (finding == Finding::FEWER_MUCH_FASTER || (finding == Finding::LOWERED && cost_.n_steps() < 2)) {
        suspected_ = n_ == n_max_ && explored();  // otherwise it is lowered already, or will notice by itself
    }
}

bool ThreadChoice::add_core_share(double seconds, double own_seconds, double now) {
    share_s_ += seconds;
    share_own_ += own_seconds;
    if (trial_ != Trial::NONE || share_s_ < SHARE_OVER_S) {
        return false;
    }
    const bool lacked_core = share_own_ < GOOD_SHARE * share_s_;
    if (lacked_core && n_ > 1 && now >= ignore_share_until_) {
        suspected_          = true;
        ignore_share_until_ = now + std::max(SHARE_AGAIN_S, SHARE_PER_STEP * seconds);
    }
    share_s_ = share_own_ = 0;
    return lacked_core;
}

void ThreadChoice::start_with(int32_t n) {
    n_         = std::clamp(n, 1, n_);
    increment_ = first_increment();
}

void ThreadChoice::settled(uint32_t n_tokens, double seconds, double excess) {
    if (cost_.n_steps() >= 2) {
        const double surprise = excess - cost_.doubt(n_tokens) - NORMAL;
        slow_                 = std::max(0.0, slow_ + std::min(surprise, STEP_IS_EVIDENCE));
    }
    n_slow_   = slow_ > 0 ? n_slow_ + 1 : 0;
    slow_sum_ = slow_ > 0 ? slow_sum_ + excess : 0;
    cost_.learn(n_tokens, seconds);
    if (slow_ > TRIGGER) {
        start_lowering(slow_sum_ / n_slow_);
    } else if (suspected_ && n_ > 1) {
        start_lowering(slow_ > 0 ? slow_sum_ / n_slow_ : 0);
    } else if (ready_to_explore(seconds)) {
        start(Trial::EXPLORE, (low_ + n_) / 2);
    }
}

bool ThreadChoice::explored() const { return n_ - low_ <= std::max(1, n_ / 16); }

bool ThreadChoice::ready_to_explore(double seconds) const {
    const int32_t n_steps = cost_.n_steps();
    return !explored() && slow_ == 0 && (n_steps >= EXPLORE_BASELINE || n_steps * seconds > EXPLORE_BASELINE_S);
}

ThreadChoice::Finding ThreadChoice::exploring(double excess, double lost) {
    const Verdict result = verdict(excess, lost, TIE - given_up_);
    const double  mean   = sum_ / n_steps_;
    if (result == Verdict::BETTER) {
        given_up_ = std::max(0.0, given_up_ + mean);
        adopt(tried_, mean, n_steps_);
        return mean < -MUCH ? Finding::FEWER_MUCH_FASTER : Finding::NONE;
    }
    if (result == Verdict::WORSE) {
        low_   = tried_;
        trial_ = Trial::NONE;
    }
    return Finding::NONE;
}

ThreadChoice::Finding ThreadChoice::raising(double excess, double lost, double now) {
    const Verdict result = verdict(excess, lost, MORE_PAYS);
    if (result == Verdict::BETTER) {
        const int32_t increment = 2 * increment_;
        adopt(tried_, sum_ / n_steps_, n_steps_);
        increment_         = increment;
        raised_at_         = now;
        n_failures_before_ = std::max(n_failures_before_, n_failures_);
        n_failures_        = 0;
        return Finding::MORE_FASTER;
    }
    if (result == Verdict::WORSE) {
        trial_           = Trial::NONE;
        increment_       = increment_ > std::max(1, n_ / 16) ? increment_ / 2 : first_increment();
        n_failures_      = std::min(n_failures_ + 1, MAX_FAILURES);
        rests_until_     = now + rest_s(n_failures_);
        waits_until_     = now + std::max(wait_s(n_failures_), WAIT_PER_LOST * lost_);
        tries_anyway_at_ = now + std::max(BLIND_S, BLIND_PER_LOST * lost_);
    }
    return Finding::NONE;
}

// One step per number is enough: the effect of other programs is large.
ThreadChoice::Finding ThreadChoice::lowering(double excess, double now) {
    if (excess < best_) {
        best_   = excess;
        n_best_ = tried_;
    }
    const double  price    = std::log(static_cast<double>(n_) / tried_);  // the most that fewer threads can cost
    const bool    normal   = excess < std::min(price + MUCH, slowdown_ + FEWER_PAYS);
    const bool    hopeless = excess > best_ - FEWER_PAYS && price > slowdown_;
    const int32_t fewer    = 2 * tried_ > n_ ? 2 * tried_ - n_ : tried_ / 2;
    if (!normal && !hopeless && fewer > 0) {
        tried_ = fewer;
        return Finding::NONE;
    }
    if (best_ < slowdown_ + FEWER_PAYS) {
        const bool undone  = now - raised_at_ < LASTING_S;
        n_failures_        = undone ? std::min(std::max(n_failures_, n_failures_before_) + 1, MAX_FAILURES) : 0;
        n_failures_before_ = 0;
        rests_until_ = waits_until_ = now + std::max(rest_s(n_failures_), CALM_S);
        adopt(n_best_, best_, 1);
        return Finding::LOWERED;
    }
    trial_ = Trial::NONE;
    cost_.scale(slowdown_, 1);  // fewer threads do not help, so this is the new normal
    return Finding::NONE;
}

void ThreadChoice::start(Trial trial, int32_t n) {
    trial_   = trial;
    tried_   = n;
    n_steps_ = 0;
    sum_ = score_ = lost_ = 0;
}

void ThreadChoice::start_lowering(double log_slowdown) {
    suspected_ = false;
    slow_      = 0;
    slowdown_ = best_ = log_slowdown;
    n_best_           = n_;
    if (n_ == 1) {
        cost_.scale(log_slowdown, 1);
    } else {
        start(Trial::LOWER, n_ - 1);
    }
}

void ThreadChoice::adopt(int32_t n, double log_factor, int32_t n_steps) {
    tries_anyway_at_ = 0;
    trial_           = Trial::NONE;
    n_               = n;
    slow_            = 0;
    increment_       = first_increment();
    cost_.scale(log_factor, n_steps);
}

ThreadChoice::Verdict ThreadChoice::verdict(double excess, double lost, double goal) {
    n_steps_++;
    sum_ += excess;
    lost_ += std::max(lost, 0.0);
    score_ += std::clamp(goal - excess, -STEP_SAYS, STEP_SAYS);
    const bool enough = n_steps_ == MAX_STEPS;
    const bool plain  = excess < goal - MUCH;  // outliers never make a step faster
    if (plain || score_ > DECIDED || (enough && score_ > 0)) {
        return Verdict::BETTER;
    }
    const bool costly = lost_ > PATIENCE_S && excess > goal + MUCH;
    return score_ < -DECIDED || enough || costly ? Verdict::WORSE : Verdict::NONE;
}

ThreadTuner::ThreadTuner(int32_t n_max)
    : ThreadTuner(n_max, steady_seconds, n_max > 1 ? make_idle_core_probe() : nullptr) {}

ThreadTuner::ThreadTuner(int32_t n_max, Seconds now, std::shared_ptr<IdleCoreProbe> probe)
    : now_(std::move(now)), probe_(std::move(probe)), choices_{ThreadChoice(n_max, true), ThreadChoice(n_max, true),
                                                               ThreadChoice(n_max, true), ThreadChoice(n_max, false)} {}

// Estimate the cores that other programs leave idle, if all threads, theirs and n_used compute threads, got this share.
int32_t ThreadTuner::n_idle_cores(int32_t n_used, double share) const {
    const double n_cores = choices_.front().n_max();
    return static_cast<int32_t>(n_used + n_cores * (1 - 1 / std::max(share, 0.1)));
}

ThreadChoice & ThreadTuner::choice(uint32_t n_tokens) {
    size_t i = 0;
    while (n_tokens > LARGEST[i]) {
        i++;
    }
    return choices_[i];
}

int32_t ThreadTuner::threads(uint32_t n_tokens) {
    ThreadChoice & chosen = choice(n_tokens);
    const double   now    = now_();
    after_pause_          = now - ended_at_ > PAUSE_S;
    if (probe_) {
        if (!chosen.has_started()) {
            chosen.start_with(probe_->n_idle_cores());  // while programs are busy, a first step could take seconds
        }
        chosen.maybe_raise(probed_n_threads_ == chosen.n() ? probe_->observation() : IdleCoreProbe::Observation(), now);
        if (chosen.next() > chosen.n()) {
            probe_->reset();  // the idle core is about to be used
        }
        const bool looks  = chosen.wants_probe(now);
        probed_n_threads_ = looks ? chosen.n() : probed_n_threads_;
        probe_->step_begins(looks ? chosen.n() : 0);
    }
    return chosen.next();
}

void ThreadTuner::measured(uint32_t n_tokens, double seconds, double own_seconds) {
    abandoned();
    if (n_tokens == 0 || seconds <= 0) {
        return;  // the clock is too coarse
    }
    ThreadChoice &              chosen      = choice(n_tokens);
    const int32_t               n_used      = chosen.next();
    const bool                  lacked_core = chosen.add_core_share(seconds, own_seconds, ended_at_);
    const ThreadChoice::Finding finding     = chosen.measured(n_tokens, seconds, ended_at_, after_pause_);
    for (ThreadChoice & other : choices_) {
        if (&other != &chosen) {
            other.apply_finding(finding, ended_at_);
            if (lacked_core && !other.has_started()) {
                other.start_with(n_idle_cores(n_used, own_seconds / seconds));
            }
        }
    }
}

void ThreadTuner::abandoned() {
    ended_at_ = now_();
    if (probe_) {
        probe_->step_ends();
    }
}

}  // namespace pyg
