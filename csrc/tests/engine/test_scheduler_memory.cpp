// The scheduler when allocations fail: failed calls can be repeated, and no task and no cell is lost.
#include "tests/support/scarce_memory.hpp"
#include "tests/support/simulated_cache.hpp"

#include <algorithm>
#include <numeric>

namespace {

using pyg::Scheduler;
using pyg::Slice;
using pyg::Step;
using pyg::Task;
using TaskPtr = std::shared_ptr<Task>;
using Kind    = SimulatedCache::Kind;
using Tokens  = std::vector<int32_t>;

constexpr int32_t  N_SEQ    = 4;
constexpr uint32_t N_CELLS  = 300;
constexpr uint32_t N_ANSWER = 30;

// Some share a prefix, and together they exceed the KV cache.
std::vector<TaskPtr> tasks() {
    std::vector<TaskPtr> all;
    for (int32_t i = 0; i < 12; i++) {
        const auto task = std::make_shared<Task>();
        task->tokens.resize(static_cast<size_t>(40 + 5 * i));
        std::iota(task->tokens.begin(), task->tokens.end(), 1000 * (i % 3));
        task->tokens.back() = -i;
        all.push_back(task);
    }
    return all;
}

Tokens alone(Tokens tokens) {
    History history = NO_HISTORY;
    for (size_t i = 0, n = tokens.size() + N_ANSWER; i + 1 < n; i++) {
        history = grown(history, tokens[i]);
        if (i + 1 >= tokens.size()) {
            tokens.push_back(next_token(history));
        }
    }
    return tokens;
}

struct Work {
    SimulatedCache       cache;
    Scheduler            scheduler;
    std::vector<TaskPtr> all        = tasks();
    long                 n_failures = 0;

    explicit Work(Kind kind, size_t prefix_cache_bytes = 0)
        : cache(kind, N_CELLS, N_SEQ), scheduler({N_SEQ, N_CELLS, /*n_batch=*/100, /*n_rows=*/16, true,
                                                  /*n_ubatch=*/UINT32_MAX, prefix_cache_bytes},
                                                 cache) {
        for (const TaskPtr & task : all) {
            scheduler.add(task);
        }
    }

    Step next() {
        Step step;
        n_failures += with_ever_more_memory([&] { step = scheduler.next({/*with_decode=*/20}); });
        return step;
    }

    void compute(const Step & step) {
        for (const Slice & slice : step.slices) {
            for (uint32_t i = slice.first; i < slice.first + slice.n; i++) {
                cache.compute(slice.task->seq_id, slice.task->tokens[i]);
            }
        }
        scheduler.commit(step);
        for (const Slice & slice : step.slices) {
            if (slice.reaches_end()) {
                slice.task->tokens.push_back(next_token(cache.history(slice.task->seq_id)));
            }
        }
    }

    void end(Task & task) {
        bool ended = false;
        n_failures += with_ever_more_memory([&] { ended = scheduler.end(task); });
        CHECK(ended && !scheduler.end(task));
    }
};

void test_answers_are_those_with_memory(Kind kind, size_t prefix_cache_bytes) {
    Work                work(kind, prefix_cache_bytes);
    std::vector<Tokens> expected;
    for (const TaskPtr & task : work.all) {
        expected.push_back(alone(task->tokens));
    }
    while (!work.scheduler.idle()) {
        const Step step = work.next();
        CHECK(!step.empty());
        work.compute(step);
        for (size_t i = 0; i < work.all.size(); i++) {
            if (work.all[i]->is_running() && work.all[i]->tokens.size() == expected[i].size()) {
                CHECK(work.all[i]->tokens == expected[i]);
                work.end(*work.all[i]);
            }
        }
    }
    CHECK(work.n_failures > 100 && work.scheduler.n_preemptions() > 0);
    work.scheduler.evict_all();
    CHECK(work.scheduler.n_cells_used() == 0 && work.cache.n_used() == 0);
}

// After a failure, tasks are ended instead.
void test_all_can_be_given_up(Kind kind, size_t prefix_cache_bytes) {
    long n_failures = 0;
    for (long n = 0; n < 200; n++) {
        Work work(kind, prefix_cache_bytes);
        for (int i = 0; i < 8; i++) {
            work.compute(work.next());
        }
        try {
            const Scarce scarce(n);
            work.scheduler.next({/*with_decode=*/20});
        } catch (const std::bad_alloc &) {
            n_failures++;
        }
        {
            const Scarce none(0);
            for (const TaskPtr & task : work.all) {
                CHECK(work.scheduler.end(*task, /*forget=*/true));
            }
            work.scheduler.evict_all();
        }
        CHECK(work.scheduler.idle() && work.scheduler.n_cells_used() == 0 && work.cache.n_used() == 0);
    }
    CHECK(n_failures > 0);
}

}  // namespace

int main() {
    for (const Kind kind : {Kind::PLAIN, Kind::WINDOW, Kind::RECURRENT}) {
        for (const size_t prefix_cache_bytes : {0, 1500, 20000}) {
            test_answers_are_those_with_memory(kind, prefix_cache_bytes);
        }
        test_all_can_be_given_up(kind, 0);
        test_all_can_be_given_up(kind, 20000);
    }
    return 0;
}
