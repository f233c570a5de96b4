// Thread tuning on simulated machines, and the idle core probe on this one.
#include "tests/support/simulated_machine.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using pyg::ThreadTuner;

constexpr int32_t  CORES[]      = {2, 3, 8, 64};
constexpr uint32_t STEP_SIZES[] = {1, 4, 20, 512};

Model any_model(std::mt19937 & random, int32_t n_cores) {
    const auto   any    = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
    const double step_s = std::exp(any(std::log(0.004), std::log(0.05)));  // of one token on all cores, about
    Model        model  = {};
    model.weights_s     = step_s * n_cores * any(0.5, 1);
    model.token_s       = model.weights_s * any(0.02, 0.2);
    model.n_saturates   = 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(n_cores));
    model.barriers_s    = step_s * any(0, 0.1) / n_cores;
    model.slowdown      = any(2.5, 20);
    return model;
}

Machine any_machine(uint32_t seed) {
    std::mt19937  random(seed);
    const int32_t n_cores = CORES[seed % std::size(CORES)];
    Machine       machine = {n_cores, any_model(random, n_cores)};
    machine.growth        = std::uniform_real_distribution<>(0, 0.001)(random);
    machine.random.seed(seed);
    return machine;
}

// Long enough for the first choice.
void settle(Run & run, uint32_t n_tokens) { run.slowness(n_tokens, n_tokens == 512 ? 20 : 150); }

struct Worst {
    double worst  = 0;
    int    n_over = 0;

    void add(double value, double limit) {
        worst = std::max(worst, value);
        n_over += value > limit;
    }
};

void test_free_machine_gets_nearly_the_best_count() {
    constexpr uint32_t N = 1000;
    for (const uint32_t n_tokens : STEP_SIZES) {
        Worst slowness, exploring;
        for (uint32_t seed = 0; seed < N; seed++) {
            Run run(any_machine(seed));
            exploring.add((run.slowness(n_tokens, 100) - 1) * 100, 8);
            settle(run, n_tokens);
            slowness.add(run.slowness(n_tokens, 200), 1.03);
        }
        CHECK(exploring.n_over == 0);  // steps' worth
        CHECK(slowness.n_over == 0);
    }
}

void test_prompts_are_not_explored_without_a_reason() {
    for (uint32_t seed = 0; seed < 100; seed++) {
        Run run(any_machine(seed));
        for (int i = 0; i < 30; i++) {
            run.step(512);
            CHECK(run.n() == run.machine().n_cores);
        }
    }
}

// Return true if other programs disturb the compute threads.
bool disturb(Run & run, uint32_t n_tokens, int32_t n_neighbours) {
    run.machine().growth     = 0;
    run.machine().neighbours = {{run.machine().now, n_neighbours}};
    run.step(n_tokens);
    return run.n() + n_neighbours > run.machine().n_cores;
}

void test_disturbance_lowers_within_three_steps() {
    for (const uint32_t n_tokens : STEP_SIZES) {
        for (uint32_t seed = 0; seed < 1000; seed++) {
            Run           run(any_machine(seed));
            const int32_t n_others = 1 + static_cast<int32_t>(seed / 4) % std::max(1, run.machine().n_cores / 4);
            settle(run, n_tokens);
            if (!disturb(run, n_tokens, n_others)) {
                continue;
            }
            const int32_t n_before = run.n();
            run.slowness(n_tokens, 3);
            CHECK(run.n() < n_before);
            run.slowness(n_tokens, 12);
            // With many cores, only a trial shows that more than one is idle.
            CHECK(run.slowness(n_tokens, 100) < (run.machine().n_cores == 64 ? 1.6 : 1.1));
        }
    }
}

void test_full_speed_is_back_soon() {
    for (const uint32_t n_tokens : STEP_SIZES) {
        for (uint32_t seed = 0; seed < 1000; seed++) {
            Run run(any_machine(seed));
            settle(run, n_tokens);
            if (run.machine().n_cores == 64 || !disturb(run, n_tokens, 1)) {
                continue;
            }
            run.until(run.machine().now + 5, n_tokens);
            const double free_at = run.machine().now;
            run.machine().neighbours.emplace_back(free_at, 0);
            // With long steps, a few are needed however long they take.
            run.until(free_at + std::max(1.0, 8 * run.machine().best_s(n_tokens)), n_tokens);
            CHECK(run.slowness(n_tokens, 100) < 1.05);
        }
    }
}

void test_blind_scout_delays_the_way_back_only() {
    for (uint32_t seed = 0; seed < 50; seed++) {
        Machine machine    = any_machine(seed);
        machine.growth     = 0;
        machine.blind      = true;
        machine.neighbours = {{2, 1}, {4, 0}};
        Run run(std::move(machine));
        run.until(100, 1);
        CHECK(run.slowness(1, 50) < 1.05);
    }
}

void test_loaded_while_disturbed() {
    Worst slowness;
    for (uint32_t seed = 0; seed < 1000; seed++) {
        Machine machine    = any_machine(seed);
        machine.growth     = 0;
        machine.neighbours = {{0, std::max(1, machine.n_cores / 4)}, {5, 0}};
        Run run(std::move(machine));
        run.until(2, 1);
        run.slowness(1, 20);
        CHECK(run.slowness(1, 100) < 1.6);
        run.until(7, 1);
        run.slowness(1, 8);
        slowness.add(run.slowness(1, 50), 1.05);
    }
    CHECK(slowness.n_over < 20 && slowness.worst < 2);  // with many cores, a few idle ones make no difference
}

// If the system counts running threads, no step of the first request stalls. If not, only one does.
void test_first_request_while_disturbed() {
    for (uint32_t seed = 0; seed < 400; seed++) {
        Machine machine          = any_machine(seed);
        machine.growth           = 0;
        machine.counts           = seed % 8 < 4;
        machine.model.barriers_s = 0;
        machine.neighbours       = {{0, machine.n_cores}};
        Run run(std::move(machine));
        int n_stalls = 0;
        for (int i = 0; i < 30; i++) {
            const uint32_t n_tokens = i == 0 ? 100 : i == 1 ? 20 : 1;
            const double   usual_s  = run.machine().step_s(n_tokens, 1);
            n_stalls += run.step(n_tokens) > 1.5 * usual_s;
        }
        CHECK(n_stalls <= (run.machine().counts ? 0 : 1));
    }
}

void test_one_long_step_without_a_core_lowers() {
    for (uint32_t seed = 0; seed < 100; seed++) {
        Machine machine           = any_machine(4 * seed);  // of two cores
        machine.growth            = 0;
        machine.model.n_saturates = 2;
        machine.model.slowdown    = 20;
        Run run(std::move(machine));
        settle(run, 1);
        CHECK(disturb(run, 1, 2) && run.n() == 2);
        run.step(1);
        CHECK(run.n() == 1);
    }
}

Machine two_cores(uint32_t seed) {
    std::mt19937 random(seed);
    Machine      machine      = {2, any_model(random, 2)};
    machine.model.n_saturates = 2;
    machine.model.slowdown    = std::max(machine.model.slowdown, 2.8);
    return machine;
}

// No step was ever faster, but the compute threads often lack a core.
void test_prompts_disturbed_from_the_start() {
    for (uint32_t seed = 0; seed < 100; seed++) {
        Machine machine    = two_cores(seed);
        machine.neighbours = {{0, 1}};
        Run run(std::move(machine));
        run.slowness(512, 3);
        CHECK(run.n() == 1 && run.tuner().n_threads_batch() == 1);
    }
}

void test_prompts_learn_from_tokens() {
    for (uint32_t seed = 0; seed < 100; seed++) {
        Machine machine    = two_cores(seed);
        machine.neighbours = {{0, 1}};
        Run disturbed(std::move(machine));
        disturbed.slowness(512, 2);
        disturbed.slowness(1, 30);
        disturbed.slowness(512, 3);
        CHECK(disturbed.tuner().n_threads() == 1 && disturbed.tuner().n_threads_batch() == 1);

        Run run(two_cores(seed));
        run.slowness(512, 1);
        run.slowness(1, 30);
        CHECK(run.tuner().n_threads() == 2);
        disturb(run, 1, 1);
        run.slowness(1, 5);
        run.slowness(512, 3);
        CHECK(run.tuner().n_threads() == 1 && run.tuner().n_threads_batch() == 1);
        run.machine().neighbours.emplace_back(run.machine().now, 0);
        run.until(run.machine().now + 1, 1);
        run.slowness(512, 4);
        CHECK(run.tuner().n_threads() == 2 && run.tuner().n_threads_batch() == 2);
    }
}

void test_neighbour_that_comes_and_goes() {
    for (const double period : {0.02, 0.1, 0.4, 1.0, 3.0}) {
        for (uint32_t seed = 0; seed < 100; seed++) {
            Machine machine = two_cores(seed);
            for (int i = 0; 2 + i * period < 12; i++) {
                machine.neighbours.emplace_back(2 + i * period, (i + 1) % 2);
            }
            Machine fixed = machine;
            Run     run(std::move(machine));
            run.until(2, 1);
            const int    n_steps = run.until(12, 1);
            const double one_s   = fixed.step_s(1, 1);
            CHECK(n_steps > 0.7 * 10 / one_s);  // close to one thread's speed without disturbances
        }
    }
}

void test_changing_batches_are_no_disturbance() {
    Worst slowness;
    for (uint32_t seed = 0; seed < 500; seed++) {
        std::mt19937 random(seed);
        Run          run(any_machine(seed));
        double       taken = 0, best = 0;
        for (int i = 0; i < 1000; i++) {
            const uint32_t n_tokens = random() % 4 ? 1 + random() % 32 : 33 + random() % 480;
            const double   best_s   = run.machine().best_s(n_tokens);
            const double   step_s   = run.step(n_tokens);
            taken += i < 400 ? 0 : step_s;
            best += i < 400 ? 0 : best_s;
        }
        slowness.add(taken / best, 1.03);
    }
    CHECK(slowness.n_over < 10 && slowness.worst < 1.06);
}

void test_free_machine_keeps_its_choice() {
    for (uint32_t seed = 0; seed < 200; seed++) {
        Run run(any_machine(seed));
        run.until(3, 1);
        int     n_changes = 0;
        int32_t n         = run.tuner().n_threads();
        while (run.machine().now < 33) {
            run.step(1);
            n_changes += run.tuner().n_threads() != n;
            n = run.tuner().n_threads();
        }
        CHECK(n_changes <= 6);
    }
}

void test_one_core_leaves_no_choice() {
    ThreadTuner tuner(1);
    for (int i = 0; i < 50; i++) {
        CHECK(tuner.threads(1) == 1);
        tuner.measured(1, i % 7 ? 0.01 : 0.1, 0.01);
    }
}

// The real probe. Its observations depend on what else runs here, so only this is certain: it runs during steps, and
// only then.

using namespace std::chrono_literals;

int64_t process_cpu_ns() {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

bool answers(pyg::IdleCoreProbe & probe) {
    for (int i = 0; i < 600; i++) {  // on a fully busy machine it gets a core late
        probe.step_begins(1);
        std::this_thread::sleep_for(50ms);
        probe.step_ends();
        if (probe.observation().n_free > 0 || probe.observation().was_taken) {
            return true;
        }
    }
    return false;
}

void test_scout_answers_and_forgets() {
    const auto probe = pyg::make_idle_core_probe();
    CHECK(probe->observation().n_free == 0 && !probe->observation().was_taken);
    CHECK(answers(*probe));
    probe->step_begins(2);  // another number of threads resets the observation
    CHECK(probe->observation().n_free == 0 && !probe->observation().was_taken);
    probe->step_ends();
}

void test_scout_sleeps_unless_asked() {
    const auto probe = pyg::make_idle_core_probe();
    CHECK(answers(*probe));
    std::this_thread::sleep_for(300ms);  // a gap long enough for the probe to fall asleep
    const int64_t before = process_cpu_ns();
    probe->step_begins(0);
    std::this_thread::sleep_for(300ms);
    probe->step_ends();
    std::this_thread::sleep_for(200ms);
    CHECK(process_cpu_ns() - before < 100000000);  // this thread sleeps, and the probe's would have spun half the time
}

void test_scout_ends_whatever_it_does() {
    for (int i = 0; i < 20; i++) {
        const auto probe = pyg::make_idle_core_probe();
        if (i % 2) {
            probe->step_begins(1);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(i));
    }
}

}  // namespace

int main() {
    test_free_machine_gets_nearly_the_best_count();
    test_prompts_are_not_explored_without_a_reason();
    test_disturbance_lowers_within_three_steps();
    test_full_speed_is_back_soon();
    test_blind_scout_delays_the_way_back_only();
    test_loaded_while_disturbed();
    test_first_request_while_disturbed();
    test_one_long_step_without_a_core_lowers();
    test_prompts_disturbed_from_the_start();
    test_prompts_learn_from_tokens();
    test_neighbour_that_comes_and_goes();
    test_changing_batches_are_no_disturbance();
    test_free_machine_keeps_its_choice();
    test_one_core_leaves_no_choice();
    test_scout_answers_and_forgets();
    test_scout_sleeps_unless_asked();
    test_scout_ends_whatever_it_does();
}
