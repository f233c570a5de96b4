// Simulated machines on which time passes only in steps, with other programs that come and go, and a probe.
#pragma once

#include "engine/threads/thread_tuner.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

// How long a model's steps take.
struct Model {
    double  token_s;      // one thread, arithmetic of one token
    double  weights_s;    // one thread, reading the weights
    int32_t n_saturates;  // this many threads saturate the memory
    double  barriers_s;   // for each thread
    double  slowdown;     // by another program on the core of one of the threads
};

// A machine whose time passes only in steps. From each moment in `neighbours` on, other programs use that many cores.
struct Machine {
    int32_t                                 n_cores;
    Model                                   model;
    double                                  noise      = 0.05;
    double                                  growth     = 0;  // of the cost of a step, for each step
    std::vector<std::pair<double, int32_t>> neighbours = {};
    bool                                    blind      = false;  // the probe never sees an idle core
    bool                                    counts     = false;  // the system counts running threads
    std::mt19937                            random     = std::mt19937(1);
    double                                  now        = 0;
    int                                     n_steps    = 0;

    int32_t n_taken() const {
        int32_t n = 0;
        for (const auto & [since, n_neighbours] : neighbours) {
            n = since <= now ? n_neighbours : n;
        }
        return n;
    }

    double next_change() const {
        for (const auto & [since, n_neighbours] : neighbours) {
            if (since > now) {
                return since;
            }
        }
        return INFINITY;
    }

    double free_step_s(uint32_t n_tokens, int32_t n) const {
        const double work = std::max(model.weights_s / std::min(n, model.n_saturates), n_tokens * model.token_s / n);
        return (work + (n - 1) * model.barriers_s) * (1 + growth * n_steps);
    }

    double step_s(uint32_t n_tokens, int32_t n) const {
        const double crowd = static_cast<double>(n + n_taken()) / n_cores;
        // A single thread has no barriers: it only shares its core.
        const double slower = crowd <= 1 ? 1 : n == 1 ? crowd : std::max(model.slowdown, crowd);
        return free_step_s(n_tokens, n) * slower;
    }

    // CPU share of each compute thread.
    double share(int32_t n) const { return std::min(1.0, static_cast<double>(n_cores) / (n + n_taken())); }

    double best_s(uint32_t n_tokens) const {
        double best = INFINITY;
        for (int32_t n = 1; n <= n_cores; n++) {
            best = std::min(best, step_s(n_tokens, n));
        }
        return best;
    }
};

// Behaves as the real probe: one window per 20 ms in which a core is idle.
class SimulatedIdleCoreProbe final : public pyg::IdleCoreProbe {
  public:
    explicit SimulatedIdleCoreProbe(const Machine & machine) : machine_(machine) {}

    void step_begins(int32_t n_threads) override {
        if (n_threads && n_threads != n_threads_) {
            reset();
        }
        asked_     = n_threads != 0;
        n_threads_ = asked_ ? n_threads : n_threads_;
    }
    void step_ends() override { asked_ = false; }
    void reset() override {
        free_s_    = 0;
        was_taken_ = false;
    }
    Observation observation() const override { return {static_cast<int32_t>(free_s_ / 0.02), was_taken_}; }
    int32_t     n_idle_cores() const override {
        return machine_.counts ? machine_.n_cores - machine_.n_taken() : INT32_MAX;
    }

    void pass(double seconds) {
        if (asked_) {
            const bool free = !machine_.blind && machine_.n_taken() + n_threads_ < machine_.n_cores;
            free_s_         = free ? free_s_ + seconds : 0;
            was_taken_      = was_taken_ || !free;
        }
    }

  private:
    const Machine & machine_;
    int32_t         n_threads_ = 0;
    bool            asked_     = false;
    double          free_s_    = 0;
    bool            was_taken_ = false;
};

// An engine that computes steps on such a machine.
class Run {
  public:
    explicit Run(Machine machine)
        : machine_(std::move(machine)), probe_(new SimulatedIdleCoreProbe(machine_)),
          tuner_(machine_.n_cores, [this] { return machine_.now; }, std::unique_ptr<pyg::IdleCoreProbe>(probe_)) {}

    // Returns how long the step took.
    double step(uint32_t n_tokens) {
        n_                 = tuner_.threads(n_tokens);
        const double start = machine_.now;
        double       own_s = 0;
        const double noise = 1 + std::uniform_real_distribution<>(-machine_.noise, machine_.noise)(machine_.random);
        for (double left = 1; left > 0;) {
            const double whole_s = machine_.step_s(n_tokens, n_) * noise;
            const double passes  = std::min(left * whole_s, machine_.next_change() - machine_.now + 1e-9);
            left                 = passes >= left * whole_s ? 0 : left - passes / whole_s;
            probe_->pass(passes);
            own_s += passes * machine_.share(n_);
            machine_.now += passes;
        }
        machine_.n_steps++;
        CHECK(n_ >= 1 && n_ <= machine_.n_cores);
        tuner_.measured(n_tokens, machine_.now - start, own_s);
        return machine_.now - start;
    }

    // Mean time of this many steps, relative to the best fixed number of threads at the moment.
    double slowness(uint32_t n_tokens, int n_steps) {
        double taken = 0, best = 0;
        for (int i = 0; i < n_steps; i++) {
            best += machine_.best_s(n_tokens);
            taken += step(n_tokens);
        }
        return taken / best;
    }

    // Returns the number of steps.
    int until(double time, uint32_t n_tokens) {
        int n_steps = 0;
        for (; machine_.now < time; n_steps++) {
            step(n_tokens);
        }
        return n_steps;
    }

    int32_t                  n() const { return n_; }
    const pyg::ThreadTuner & tuner() const { return tuner_; }
    Machine &                machine() { return machine_; }

  private:
    Machine                  machine_;
    SimulatedIdleCoreProbe * probe_;  // the tuner's
    pyg::ThreadTuner         tuner_;
    int32_t                  n_ = 0;
};
