// The scheduler, case by case. test_scheduler_random combines everything.
#include "engine/scheduling/kv_layout.hpp"
#include "tests/support/simulated_cache.hpp"

#include <algorithm>
#include <numeric>

namespace {

using pyg::KvCells;
using pyg::KvLayout;
using pyg::Scheduler;
using pyg::Slice;
using pyg::Step;
using pyg::Task;
using TaskPtr = std::shared_ptr<Task>;
using Kind    = SimulatedCache::Kind;
using Tokens  = std::vector<int32_t>;

// `n` tokens that no text of another `topic` contains.
Tokens text(int32_t topic, uint32_t n) {
    Tokens tokens(n);
    std::iota(tokens.begin(), tokens.end(), 10000 * topic);
    return tokens;
}

Tokens operator+(Tokens a, const Tokens & b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

struct Setting {
    Kind     kind         = Kind::PLAIN;
    uint32_t n_cells      = 1000;
    int32_t  n_seq        = 4;
    bool     prefix_cache = true;
    uint32_t n_ubatch     = UINT32_MAX;
    size_t   saved_bytes  = 0;  // of checkpoints and snapshots
};

// A scheduler with a simulated engine that generates until a task is ended.
struct Engine {
    SimulatedCache cache;
    Scheduler      scheduler;

    explicit Engine(const Setting & setting = {}, pyg::SnapshotStore * store = nullptr)
        : cache(setting.kind, setting.n_cells, setting.n_seq),
          scheduler({setting.n_seq, setting.n_cells, /*n_batch=*/100, /*n_rows=*/16, setting.prefix_cache,
                     setting.n_ubatch, setting.saved_bytes},
                    cache, store) {}

    TaskPtr add(const Tokens & prompt) {
        auto task    = std::make_shared<Task>();
        task->tokens = prompt;
        scheduler.add(task);
        return task;
    }

    TaskPtr add_every_row(const Tokens & prompt) {
        const auto task        = add(prompt);
        task->needs_all_logits = true;
        return task;
    }

    Step step(uint32_t n_prefill = 100) { return step(Scheduler::PrefillBudget{n_prefill}); }

    Step step(const Scheduler::PrefillBudget & budget) {
        const Step step = scheduler.next(budget);
        compute(step);
        scheduler.commit(step);
        for (const Slice & slice : step.slices) {
            if (slice.reaches_end()) {
                slice.task->tokens.push_back(next_token(cache.history(slice.task->seq_id)));
            }
        }
        return step;
    }

    void compute(const Step & step) {
        for (const Slice & slice : step.slices) {
            for (uint32_t i = slice.first; i < slice.first + slice.n; i++) {
                cache.compute(slice.task->seq_id, slice.task->tokens[i]);
            }
        }
    }

    // Until a task has this many tokens, including the prompt.
    void run_to(const TaskPtr & task, uint32_t n) {
        while (task->n_tokens() < n) {
            CHECK(!step().empty());
        }
    }

    // A request from start to end. All tokens but the last are computed.
    TaskPtr complete(const Tokens & prompt, uint32_t n_answer = 1) {
        const auto task = add(prompt);
        run_to(task, task->n_tokens() + n_answer);
        scheduler.end(*task);
        return task;
    }
};

uint32_t n_of(const Step & step, const TaskPtr & task) {
    for (const Slice & slice : step.slices) {
        if (slice.task == task) {
            return slice.n;
        }
    }
    return 0;
}

// --- steps ---

void test_decoding_tasks_come_before_prefill_chunks() {
    Engine     engine;
    const auto a = engine.add(text(1, 60)), b = engine.add(text(2, 70));

    Step step = engine.step();
    CHECK(n_of(step, a) == 60 && n_of(step, b) == 40);  // a batch is 100

    step = engine.step();
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 30);

    const auto c = engine.add(text(3, 300));
    step         = engine.step(/*n_prefill=*/20);
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 1 && n_of(step, c) == 20);

    engine.scheduler.end(*a);
    engine.scheduler.end(*b);
    step = engine.step(/*n_prefill=*/20);  // no task decodes, so none has to wait
    CHECK(n_of(step, c) == 100);
}

void test_the_oldest_prompt_comes_first() {
    Engine     engine;
    const auto a = engine.add(text(1, 150)), b = engine.add(text(2, 150));
    Step       step = engine.step();
    CHECK(n_of(step, a) == 100 && n_of(step, b) == 0);
    step = engine.step();
    CHECK(n_of(step, a) == 50 && n_of(step, b) == 50);
}

void test_a_short_prompt_does_not_wait_for_a_long_one() {
    Engine     engine;
    const auto a    = engine.add(text(1, 500));
    Step       step = engine.step();
    CHECK(n_of(step, a) == 100);

    const auto b = engine.add(text(2, 30)), c = engine.add(text(3, 40));
    step = engine.step();
    CHECK(n_of(step, b) == 30 && n_of(step, c) == 40 && n_of(step, a) == 30);
    const auto d = engine.add(text(4, 90));
    step         = engine.step();
    CHECK(n_of(step, b) == 1 && n_of(step, c) == 1 && n_of(step, d) == 74 && n_of(step, a) == 24);  // a quarter
}

void test_long_prompts_are_prefilled_one_at_a_time() {
    Setting setting;
    setting.n_cells = 20'000;
    Engine     engine(setting);
    const auto a = engine.add(text(1, 3000)), b = engine.add(text(2, 3000));
    engine.step();
    CHECK(a->is_running() && !b->is_running());

    const auto c = engine.add(text(3, 50)), d = engine.add(text(4, 20));
    Step       step = engine.step();
    CHECK(n_of(step, a) == 30 && n_of(step, c) == 50 && n_of(step, d) == 20 && !b->is_running());
    while (a->n_pending() > 1024) {
        CHECK(!b->is_running());
        engine.step();
    }
    engine.step();
    CHECK(b->is_running());  // the steps will have space for it soon
}

// Large prefill chunks delay streamed tokens, so they are used only if no task streams.
void test_prefill_budget_depends_on_streaming() {
    const Scheduler::PrefillBudget budget = {10, 20, 50};
    Engine                         engine;
    const auto a = engine.add(text(1, 30)), b = engine.add(text(2, 200)), c = engine.add(text(3, 90));
    a->prefer_throughput = b->prefer_throughput = c->prefer_throughput = true;

    Step step = engine.step(budget);
    CHECK(n_of(step, a) == 30 && n_of(step, b) == 20);
    step = engine.step(budget);  // the next token of a is in the batch
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 50);

    const auto watched = engine.add(text(4, 25));
    step               = engine.step(budget);
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 5 && n_of(step, watched) == 15);
    engine.scheduler.end(*b);
    engine.scheduler.end(*c);
    step = engine.step(budget);
    CHECK(n_of(step, a) == 1 && n_of(step, watched) == 10);
    engine.step(budget);

    const auto d         = engine.add(text(5, 90));
    d->prefer_throughput = true;
    step                 = engine.step(budget);
    CHECK(n_of(step, watched) == 1 && n_of(step, d) == 10);
    engine.scheduler.end(*watched);
    step = engine.step(budget);
    CHECK(n_of(step, a) == 1 && n_of(step, d) == 50);
}

void test_steps_fill_micro_batches() {
    Setting setting;
    setting.n_ubatch = 16;
    Engine     engine(setting);
    const auto a = engine.add(text(1, 10)), b = engine.add(text(2, 200));

    const auto of   = [](uint32_t n) { return Scheduler::PrefillBudget{n, n, n}; };
    Step       step = engine.step(of(40));
    CHECK(n_of(step, a) == 10 && n_of(step, b) == 22);
    step = engine.step(of(40));  // the answer to a comes along
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 31);
    step = engine.step(of(100));
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 95);
    step = engine.step(of(10));  // less than one
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 10);
    step = engine.step(of(100));  // the end
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 42);
}

void test_decoding_tasks_alone_fill_a_micro_batch() {
    Setting setting;
    setting.n_ubatch = 2;
    Engine     engine(setting);
    const auto a = engine.add(text(1, 1)), b = engine.add(text(2, 1)), c = engine.add(text(3, 1));
    engine.step();
    const auto d    = engine.add(text(4, 3));
    const Step step = engine.step(1);
    CHECK(n_of(step, a) == 1 && n_of(step, b) == 1 && n_of(step, c) == 1 && n_of(step, d) == 1);
}

void test_all_logits_are_computed_alone_in_every_other_step() {
    Engine engine;
    engine.complete(text(1, 40));
    const auto rows = engine.add_every_row(text(1, 40));
    const auto task = engine.add(text(2, 5));

    Step step = engine.step();
    CHECK(step.slices.size() == 1 && n_of(step, rows) == 16 && rows->n_cached == 0);  // 16 rows at a time
    step = engine.step();
    CHECK(step.slices.size() == 1 && n_of(step, task) == 5);
    step = engine.step();
    CHECK(step.slices.size() == 1 && n_of(step, rows) == 16);
    engine.scheduler.end(*task);
    step = engine.step();
    CHECK(step.slices.size() == 1 && n_of(step, rows) == 8 && !step.slices[0].reaches_end());
}

// --- prefix cache ---

void test_the_same_prompt_again() {
    Engine engine;
    CHECK(engine.complete(text(1, 90))->n_cached == 0);
    CHECK(engine.complete(text(1, 90))->n_cached == 89);  // the last token is decoded again for its logits
    CHECK(engine.complete(text(1, 50))->n_cached == 49);
    CHECK(engine.complete(text(2, 90))->n_cached == 0);
    CHECK(engine.scheduler.n_cached() == 89 + 49);
}

void test_without_a_prefix_cache_nothing_is_cached() {
    Engine engine({Kind::PLAIN, 1000, 4, /*prefix_cache=*/false});
    engine.complete(text(1, 90));
    CHECK(engine.scheduler.n_cells_used() == 0 && engine.cache.n_used() == 0);
    CHECK(engine.complete(text(1, 90))->n_cached == 0);
}

// The next turn reuses everything computed: the prompt and all but the last token of the output.
void test_a_chat_grows_in_its_slot() {
    for (const Kind kind : {Kind::PLAIN, Kind::WINDOW, Kind::RECURRENT}) {
        Engine   engine({kind});
        Tokens   chat     = text(1, 30);
        uint32_t n_cached = 0;
        for (int32_t turn = 2; turn < 6; turn++) {
            const auto task = engine.complete(chat, 10);
            CHECK(task->n_cached == n_cached);
            n_cached = task->n_past;
            CHECK(n_cached == chat.size() + 9 && engine.scheduler.n_cells_used() == n_cached);
            chat = task->tokens + text(turn, 20);
        }
    }
}

void test_a_long_sequence_is_not_truncated_for_a_short_prefix() {
    Engine     engine;
    const auto system = text(1, 40);
    engine.complete(system + text(2, 100));
    CHECK(engine.complete(system + text(3, 10))->n_cached == 40);
    CHECK(engine.scheduler.n_cells_used() == 40 + 100 + 10);
    CHECK(engine.complete(system + text(2, 100) + text(4, 10))->n_cached == 140);
}

void test_prefixes_are_shared_with_running_tasks() {
    Engine     engine;
    const auto a = engine.add(text(1, 80) + text(2, 10));
    engine.step();
    const auto b = engine.add(text(1, 80) + text(3, 10));
    engine.step();
    CHECK(a->is_running() && b->is_running() && b->n_cached == 80);
    CHECK(engine.scheduler.n_cells_used() == 80 + 10 + 10 + 1);  // and a's first token
    engine.scheduler.end(*a, /*forget=*/true);
    CHECK(engine.scheduler.n_cells_used() == 80 + 10);
    engine.run_to(b, 100);
}

void test_a_task_waits_for_a_shared_prefix_in_prefill() {
    Engine engine;
    engine.add(text(2, 1));  // a streaming task, so prompts are prefilled in chunks
    engine.step();
    const auto a = engine.add(text(1, 250)), b = engine.add(text(1, 250)), other = engine.add(text(3, 10));
    engine.step(99);
    CHECK(a->is_running() && !b->is_running() &&
          other->is_running());  // the other one does not wait for the prefix of a
    engine.step(99);
    engine.step(30);
    CHECK(a->n_past == 217 && !b->is_running());
    engine.step(1);
    CHECK(a->n_past == 218 && !b->is_running());  // when this was planned, 32 of b's 249 tokens were still to come
    engine.step(1);
    CHECK(b->is_running() && b->n_cached == 218);
}

void test_short_shared_prefix_does_not_delay_admission() {
    Engine engine;
    engine.add(text(1, 31) + text(2, 200));
    const auto b = engine.add(text(1, 31) + text(3, 200));
    engine.step();
    CHECK(b->is_running() && b->n_cached == 0);
}

void test_a_recurrent_state_cannot_be_rewound() {
    Engine engine({Kind::RECURRENT});
    engine.complete(text(1, 50), 5);
    CHECK(engine.complete(text(1, 50))->n_cached == 0);
    CHECK(engine.complete(text(1, 20) + text(2, 20))->n_cached == 0);
    const auto whole = engine.complete(text(3, 50), 5);
    CHECK(engine.complete(whole->tokens)->n_cached == whole->n_past);
    const auto a = engine.add(text(4, 80)), b = engine.add(text(4, 80));
    engine.step();
    CHECK(a->is_running() && b->is_running() && b->n_cached == 0);  // no sharing, so there is nothing to wait for
}

void test_a_sliding_window_drops_older_cells() {
    Engine engine({Kind::WINDOW});
    engine.complete(text(1, 60));
    CHECK(engine.complete(text(1, 30) + text(2, 5))->n_cached == 0);
    CHECK(engine.complete(text(1, 60) + text(2, 5))->n_cached == 60);
}

void test_prefixes_are_shared_only_with_the_same_salt() {
    Engine     engine;
    const auto salted = [&](uint64_t salt) {
        const auto task  = engine.add(text(1, 90));
        task->cache_salt = salt;
        return task;
    };
    for (const uint64_t salt : {0, 1, 2}) {
        const auto task = salted(salt);
        engine.run_to(task, 95);
        CHECK(task->n_cached == 0);
        engine.scheduler.end(*task);
    }
    const auto again = salted(1), other = salted(3);
    engine.step();
    CHECK(again->n_cached == 89 && other->is_running() && other->n_cached == 0);  // it does not wait for the first
}

// --- groups ---

bool is_in(const Step & step, const TaskPtr & task) {
    return std::any_of(step.slices.begin(), step.slices.end(), [&](const Slice & slice) { return slice.task == task; });
}

void test_groups_take_turns() {
    Setting setting;
    setting.n_seq = 8;
    Engine               engine(setting);
    std::vector<TaskPtr> tasks;
    for (const uint64_t group : {0, 7, 7, 9, 0}) {
        tasks.push_back(engine.add(text(static_cast<int32_t>(tasks.size()) + 1, 10)));
        tasks.back()->adapter_group = group;
    }
    std::vector<int> waited(tasks.size(), 0), longest(tasks.size(), 0);
    for (int i = 0; i < 30; i++) {
        const Step step = engine.step();
        CHECK(!step.empty());
        for (const Slice & slice : step.slices) {
            CHECK(slice.task->adapter_group == step.slices[0].task->adapter_group);
        }
        for (size_t t = 0; t < tasks.size(); t++) {
            waited[t]  = is_in(step, tasks[t]) ? 0 : waited[t] + 1;
            longest[t] = std::max(longest[t], waited[t]);
        }
    }
    CHECK(*std::max_element(longest.begin(), longest.end()) == 2);  // the two other groups
}

// New groups that come and go do not keep an older one waiting.
void test_new_groups_wait_for_older_ones() {
    Setting setting;
    setting.n_seq = 3;
    Engine     engine(setting);
    const auto old     = engine.add(text(1, 10));
    old->adapter_group = 1;
    engine.step();
    int waited = 0, longest = 0;
    for (int32_t i = 0; i < 40; i++) {
        const auto task     = engine.add(text(i + 2, 5));
        task->adapter_group = static_cast<uint64_t>(i) + 2;
        const Step step     = engine.step();
        waited              = is_in(step, old) ? 0 : waited + 1;
        longest             = std::max(longest, waited);
        for (const Slice & slice : step.slices) {
            if (slice.task != old) {
                engine.scheduler.end(*slice.task);
            }
        }
    }
    CHECK(longest <= 2);
}

// --- checkpoints ---

Setting with_checkpoints(Kind kind, size_t n_bytes = 100000) {
    Setting setting;
    setting.kind        = kind;
    setting.saved_bytes = n_bytes;
    return setting;
}

TaskPtr complete(Engine & engine, const Tokens & prompt, std::vector<uint32_t> checkpoint_at, uint32_t n = 20) {
    const auto task     = engine.add(prompt);
    task->checkpoint_at = std::move(checkpoint_at);
    engine.run_to(task, static_cast<uint32_t>(prompt.size()) + n);
    engine.scheduler.end(*task);
    return task;
}

void test_a_prompt_continues_from_the_longest_checkpoint() {
    for (const Kind kind : {Kind::WINDOW, Kind::RECURRENT}) {
        Engine engine(with_checkpoints(kind));
        complete(engine, text(1, 90), {30, 60});
        CHECK(engine.scheduler.checkpoints().n() == 2);
        CHECK(engine.complete(text(1, 70) + text(2, 9))->n_cached == 60);
        CHECK(engine.complete(text(1, 59) + text(3, 9))->n_cached == 30);
        CHECK(engine.scheduler.checkpoints().n() == 1);  // that of 60 tokens belonged to others
        CHECK(engine.complete(text(1, 29))->n_cached == 0);
        CHECK(engine.scheduler.checkpoints().n() == 1);  // in its own slot, the first one
    }
}

void test_checkpoints_split_the_prefill() {
    Engine     engine(with_checkpoints(Kind::RECURRENT));
    const auto task     = engine.add(text(1, 90));
    task->checkpoint_at = {30, 60};
    for (const uint32_t n_past : {30, 60, 90}) {
        engine.step();
        CHECK(task->n_past == n_past);
    }
}

void test_checkpoints_stay_within_their_bytes() {
    Engine engine(with_checkpoints(Kind::RECURRENT, 3 * 16));
    complete(engine, text(1, 90), {20, 40, 60});
    CHECK(engine.scheduler.checkpoints().n() == 3 && engine.scheduler.checkpoints().n_bytes() == 3 * 16);
    CHECK(engine.complete(text(1, 30) + text(2, 9))->n_cached == 20);  // which frees those of 40 and 60
    complete(engine, text(3, 90), {20, 40, 60});
    CHECK(engine.scheduler.checkpoints().n() == 3);
    CHECK(engine.complete(text(1, 25))->n_cached == 0);
    engine.scheduler.evict_all();
    CHECK(engine.scheduler.checkpoints().n() == 0 && engine.scheduler.checkpoints().n_bytes() == 0);
    Engine none(with_checkpoints(Kind::RECURRENT, 15));
    complete(none, text(1, 90), {20});
    CHECK(none.scheduler.checkpoints().n() == 0);
}

void test_a_checkpoint_that_cannot_be_restored() {
    Engine engine(with_checkpoints(Kind::WINDOW));
    complete(engine, text(1, 90), {60});
    engine.cache.fail_restores(1);
    CHECK(engine.complete(text(1, 70) + text(2, 9))->n_cached == 0);
    CHECK(engine.scheduler.checkpoints().n() == 0);
}

void test_where_checkpoints_are_worth_it() {
    const auto   is_control = [](int32_t id) { return id < 0; };
    const Tokens turn       = {-1};
    const auto   lengths    = [&](const Tokens & prompt) { return pyg::checkpoint_lengths(prompt, is_control); };
    using Lengths           = std::vector<uint32_t>;
    CHECK(lengths(text(1, 200)).empty());
    CHECK(lengths(turn + text(1, 100) + turn + text(2, 3)).empty());
    CHECK((lengths(text(1, 1000)) == Lengths{936}));
    CHECK((lengths(text(1, 5000)) == Lengths{2048, 4096, 4936}));
    CHECK((lengths(turn + text(1, 400) + turn + turn + text(2, 500) + turn + text(3, 3)) == Lengths{401, 903}));
    CHECK((lengths(turn + text(1, 400) + turn + text(2, 100) + turn + text(3, 3)) == Lengths{502}));
    CHECK((lengths(turn + text(1, 20) + turn + text(2, 900) + turn + text(3, 3)) == Lengths{922}));
}

// --- snapshots ---

Setting with_snapshots(Kind kind, uint32_t n_cells, int32_t n_seq, size_t n_bytes = 100000) {
    Setting setting{kind, n_cells, n_seq};
    setting.saved_bytes = n_bytes;
    return setting;
}

void test_evicted_slots_come_back_from_snapshots() {
    for (const Kind kind : {Kind::PLAIN, Kind::WINDOW, Kind::RECURRENT}) {
        Engine engine(with_snapshots(kind, 300, 2));
        Tokens chats[5];
        for (int32_t turn = 0; turn < 4; turn++) {
            for (int32_t i = 0; i < 5; i++) {
                const auto n_before = static_cast<uint32_t>(chats[i].size());
                const auto task     = engine.complete(chats[i] + text(10 * i + turn, 40), 2);
                CHECK(task->n_cached == (turn == 0 ? 0 : n_before - 1));  // its last token was not computed
                chats[i] = task->tokens;
            }
        }
        CHECK(engine.scheduler.n_snapshot_hits() == 15);
        CHECK(engine.scheduler.snapshots().n_bytes() <= 100000);
    }
}

void test_a_snapshot_that_was_loaded_is_not_taken_again() {
    Engine engine(with_snapshots(Kind::PLAIN, 200, 1));
    engine.complete(text(1, 100));
    engine.complete(text(2, 100));
    CHECK(engine.cache.n_snapshots_taken() == 1);
    for (int i = 0; i < 3; i++) {
        CHECK(engine.complete(text(1, 100))->n_cached == 99);
        CHECK(engine.complete(text(2, 100))->n_cached == 99);
    }
    CHECK(engine.cache.n_snapshots_taken() == 2 && engine.scheduler.snapshots().n() == 2);
}

void test_a_longer_snapshot_replaces_its_prefix() {
    Engine engine(with_snapshots(Kind::PLAIN, 300, 1));
    engine.complete(text(1, 100));
    engine.complete(text(2, 50));
    CHECK(engine.complete(text(1, 140))->n_cached == 100);
    engine.complete(text(3, 50));
    CHECK(engine.scheduler.snapshots().n() == 2);  // of the first and the second
    CHECK(engine.complete(text(1, 140))->n_cached == 139);
}

// Part of a snapshot is enough where the rest can be truncated.
void test_part_of_a_snapshot() {
    for (const Kind kind : {Kind::PLAIN, Kind::RECURRENT}) {
        Engine engine(with_snapshots(kind, 300, 1));
        complete(engine, text(1, 100), {60});
        engine.complete(text(2, 50));
        CHECK(engine.complete(text(1, 80) + text(3, 20))->n_cached == (kind == Kind::PLAIN ? 80 : 60));
    }
}

void test_few_tokens_are_not_worth_a_snapshot() {
    Engine engine(with_snapshots(Kind::PLAIN, 100, 1));
    engine.complete(text(1, 30));
    engine.complete(text(2, 30));
    CHECK(engine.cache.n_snapshots_taken() == 0);
    engine.complete(text(1, 60));
    engine.complete(text(2, 60));
    CHECK(engine.cache.n_snapshots_taken() == 1);
    CHECK(engine.complete(text(1, 25) + text(2, 20))->n_cached == 0);  // nor to load one
}

// What the caller restored is used, however short it is.
void test_few_restored_tokens_are_used() {
    Engine     engine(with_snapshots(Kind::PLAIN, 100, 1));
    const auto task = engine.add(text(1, 9));
    engine.step();
    auto snapshot = std::make_shared<pyg::Snapshot>(engine.scheduler.snapshot_of(*task));
    engine.scheduler.end(*task);
    engine.complete(text(2, 90));
    engine.scheduler.add_snapshot(snapshot);
    CHECK(engine.complete(text(1, 9) + text(3, 5))->n_cached == 9);
}

void test_snapshots_stay_within_their_bytes() {
    constexpr size_t ONE = 16 + 100 * (sizeof(History) + sizeof(int32_t));
    Engine           engine(with_snapshots(Kind::PLAIN, 150, 1, 2 * ONE));
    for (const int32_t topic : {1, 2, 3, 4}) {
        engine.complete(text(topic, 100));
        CHECK(engine.scheduler.snapshots().n_bytes() <= 2 * ONE);
    }
    CHECK(engine.scheduler.snapshots().n() == 2);  // of the second and the third
    CHECK(engine.complete(text(2, 100))->n_cached == 99);
    CHECK(engine.complete(text(1, 100))->n_cached == 0);
    Engine none(with_snapshots(Kind::PLAIN, 150, 1, ONE - 1));
    none.complete(text(1, 100));
    none.complete(text(2, 100));
    CHECK(none.scheduler.snapshots().n() == 0 && none.complete(text(1, 100))->n_cached == 0);
}

void test_a_preempted_task_continues_from_its_snapshot() {
    Engine     engine(with_snapshots(Kind::PLAIN, 200, 4));
    const auto a = engine.add(text(1, 50)), b = engine.add(text(2, 50));
    engine.run_to(a, 120);
    CHECK(!b->is_running() && b->n_preemptions == 1);
    const uint32_t n_before = b->n_tokens();
    engine.scheduler.end(*a, /*evict_cells=*/true);
    engine.step();
    CHECK(b->is_running() && b->n_past == n_before && engine.scheduler.n_snapshot_hits() == 1);
    engine.run_to(b, 150);
}

void test_most_of_a_slot_is_saved_before_it_is_truncated() {
    Engine engine(with_snapshots(Kind::PLAIN, 300, 1));
    engine.complete(text(1, 200));
    CHECK(engine.complete(text(1, 40) + text(2, 50))->n_cached == 40);
    CHECK(engine.complete(text(1, 200))->n_cached == 199);
}

void test_a_snapshot_that_cannot_be_loaded() {
    Engine engine(with_snapshots(Kind::PLAIN, 200, 1));
    engine.complete(text(1, 100));
    engine.complete(text(2, 100));
    engine.cache.fail_restores(1);
    CHECK(engine.complete(text(1, 100))->n_cached == 0);
    CHECK(engine.scheduler.snapshots().n() == 1 && engine.scheduler.n_snapshot_hits() == 0);  // the second's
    engine.cache.fail_snapshots(true);
    engine.complete(text(3, 100));
    CHECK(engine.complete(text(1, 100))->n_cached == 0);
}

void test_snapshots_belong_to_their_salt() {
    Engine     engine(with_snapshots(Kind::PLAIN, 200, 1));
    const auto complete = [&](uint64_t salt, int32_t topic) {
        const auto task  = engine.add(text(topic, 100));
        task->cache_salt = salt;
        engine.run_to(task, 101);
        engine.scheduler.end(*task);
        return task->n_cached;
    };
    complete(7, 1);
    complete(7, 2);
    CHECK(complete(8, 1) == 0 && complete(7, 1) == 99 && complete(0, 1) == 0);
}

void test_an_added_snapshot_stays_until_it_is_used() {
    Engine     engine(with_snapshots(Kind::PLAIN, 300, 1, 0));
    const auto task = engine.add(text(1, 100));
    engine.step();
    const auto snapshot = std::make_shared<pyg::Snapshot>(engine.scheduler.snapshot_of(*task));
    CHECK(snapshot->tokens == text(1, 100));
    engine.scheduler.end(*task, /*evict_cells=*/true);
    engine.scheduler.add_snapshot(snapshot);
    engine.complete(text(2, 100));
    CHECK(engine.scheduler.snapshots().n() == 1);
    CHECK(engine.complete(text(1, 120))->n_cached == 100);
    CHECK(engine.scheduler.snapshots().n() == 0);
}

// Of text(topic, n), as from another engine.
std::shared_ptr<pyg::Snapshot> saved_prefix(int32_t topic, uint32_t n) {
    Engine     other(with_snapshots(Kind::PLAIN, 300, 1, 0));
    const auto task = other.add(text(topic, n));
    other.step();
    return std::make_shared<pyg::Snapshot>(other.scheduler.snapshot_of(*task));
}

void test_a_prefix_that_is_added_again_is_kept_once() {
    Engine     engine(with_snapshots(Kind::PLAIN, 300, 2, 0));
    const auto n_bytes = saved_prefix(1, 100)->n_bytes();
    for (int i = 0; i < 3; i++) {
        engine.scheduler.add_snapshot(saved_prefix(1, 100));
        engine.scheduler.add_snapshot(saved_prefix(1, 100));
        CHECK(engine.scheduler.snapshots().n() == 1 && engine.scheduler.snapshots().n_bytes() == 0);
        CHECK(engine.scheduler.snapshots().n_pinned_bytes() == n_bytes);
        engine.complete(text(2, 20));
        CHECK(engine.complete(text(1, 100))->n_cached == 99);  // from a slot, except the first time
        CHECK(engine.scheduler.snapshots().n() == 0 && engine.scheduler.snapshots().n_pinned_bytes() == 0);
    }
    CHECK(engine.scheduler.n_snapshot_hits() == 1);
}

void test_a_short_added_snapshot_is_used() {
    Engine engine(with_snapshots(Kind::PLAIN, 300, 1, 0));
    engine.scheduler.add_snapshot(saved_prefix(1, 20));
    CHECK(engine.complete(text(1, 30))->n_cached == 20);
}

void test_an_added_prefix_outlives_longer_sequences() {
    constexpr size_t ONE = 16 + 150 * (sizeof(History) + sizeof(int32_t));
    Engine           engine(with_snapshots(Kind::PLAIN, 300, 1, ONE));
    const auto       snapshot = saved_prefix(1, 100);
    engine.complete(text(1, 150));
    engine.scheduler.add_snapshot(snapshot);
    engine.complete(text(2, 150));  // evicts the longer one, which is copied
    CHECK(engine.scheduler.snapshots().n() == 2);
    CHECK(engine.scheduler.snapshots().n_pinned_bytes() == snapshot->n_bytes());
    engine.complete(text(3, 150));  // and dropped
    CHECK(engine.complete(text(1, 120))->n_cached == 100);
}

void test_a_failed_copy_costs_no_shorter_snapshot() {
    constexpr size_t SHORT = 16 + 50 * (sizeof(History) + sizeof(int32_t));
    Engine           engine(with_snapshots(Kind::PLAIN, 300, 1, 3 * SHORT));
    engine.complete(text(1, 50));
    engine.complete(text(2, 10));
    CHECK(engine.complete(text(1, 200))->n_cached == 50);
    engine.complete(text(2, 10));  // there are too few bytes for a copy of the longer one
    CHECK(engine.complete(text(1, 200))->n_cached == 50);
}

void test_added_prefixes_of_two_layouts() {
    Engine engine(with_snapshots(Kind::PLAIN, 300, 2, 0));
    for (const bool is_divided : {true, false, true, false}) {
        const auto snapshot  = saved_prefix(1, 100);
        snapshot->is_divided = is_divided;
        engine.scheduler.add_snapshot(snapshot);
    }
    CHECK(engine.scheduler.snapshots().n() == 2);
    CHECK(engine.complete(text(1, 100))->n_cached == 99 && engine.scheduler.snapshots().n() == 1);
}

// A tier below main memory with one snapshot.
struct OneSnapshot : pyg::SnapshotStore {
    std::shared_ptr<const pyg::Snapshot> one;
    bool                                 is_forgotten = false;

    explicit OneSnapshot(std::shared_ptr<const pyg::Snapshot> snapshot) : one(std::move(snapshot)) {}
    uint32_t longest(const pyg::Lookup & lookup) override {
        return is_forgotten ? 0 : pyg::usable_tokens(one->tokens, {}, lookup);
    }
    std::shared_ptr<const pyg::Snapshot> load(const pyg::Lookup & lookup) override {
        CHECK(longest(lookup) > 0);
        return one;
    }
    void forget(const pyg::Snapshot & snapshot) override {
        CHECK(snapshot.tokens == one->tokens);
        is_forgotten = true;
    }
    void store(std::shared_ptr<const pyg::Snapshot>) override {}
};

void test_a_fetched_snapshot_is_kept_for_its_task_only() {
    OneSnapshot store(saved_prefix(1, 100));
    Engine      engine(with_snapshots(Kind::PLAIN, 200, 2, /*n_bytes=*/100), &store);
    const auto  running = engine.add(text(2, 150)), waiting = engine.add(text(1, 120));
    engine.step();
    engine.step();
    CHECK(!waiting->is_running() && engine.scheduler.snapshots().n() == 1);
    CHECK(engine.scheduler.snapshots().n_pinned_bytes() == store.one->n_bytes());
    engine.scheduler.end(*waiting);
    CHECK(engine.scheduler.snapshots().n() == 0 && engine.scheduler.snapshots().n_pinned_bytes() == 0);
    engine.scheduler.end(*running, /*evict_cells=*/true);
    CHECK(engine.complete(text(1, 120))->n_cached == 100 && engine.scheduler.n_store_hits() == 1);
    CHECK(engine.scheduler.snapshots().n() == 0);
}

void test_a_fetched_snapshot_that_cannot_be_loaded_is_not_fetched_again() {
    OneSnapshot store(saved_prefix(1, 100));
    Engine      engine(with_snapshots(Kind::PLAIN, 200, 2), &store);
    engine.cache.fail_restores(1);
    CHECK(engine.complete(text(1, 120))->n_cached == 0 && store.is_forgotten);
}

void test_snapshots_of_another_layout_are_not_loaded() {
    Engine engine(with_snapshots(Kind::PLAIN, 300, 2));
    engine.complete(text(1, 100));
    engine.complete(text(2, 100));
    engine.complete(text(3, 100));
    CHECK(engine.scheduler.snapshots().n() == 1);
    const auto change = [&](uint32_t n_per_stream) {
        engine.scheduler.preempt_all();
        engine.cache.replace(n_per_stream);
        engine.scheduler.set_layout(n_per_stream);
    };
    change(150);
    CHECK(engine.complete(text(1, 100))->n_cached == 0);
    change(0);
    CHECK(engine.complete(text(1, 100))->n_cached == 99);
}

// What callers do before they add a task takes effect before it starts.
void test_tasks_that_arrive_during_a_copy_wait_for_the_next_step() {
    Engine engine(with_snapshots(Kind::PLAIN, 220, 2));
    engine.complete(text(1, 90));
    engine.complete(text(2, 90));
    TaskPtr late;
    engine.cache.meanwhile = [&] { late = late ? late : engine.add(text(4, 10)); };
    const auto task        = engine.add(text(3, 90));
    Step       step        = engine.scheduler.next({100}, engine.scheduler.n_arrived());
    CHECK(late && !late->is_running() && is_in(step, task) && !is_in(step, late));
    engine.compute(step);
    engine.scheduler.commit(step);
    step = engine.scheduler.next({100}, engine.scheduler.n_arrived());
    CHECK(late->is_running() && is_in(step, late));

    // Nothing is left to do for the tasks that may start.
    engine.scheduler.end(*task);
    engine.scheduler.end(*late);
    const uint64_t n_arrived = engine.scheduler.n_arrived();
    const auto     next      = engine.add(text(5, 10));
    CHECK(engine.scheduler.next({100}, n_arrived).empty() && !engine.scheduler.idle());
    CHECK(is_in(engine.scheduler.next({100}, n_arrived + 1), next));
}

void test_clear_prefix_cache() {
    Engine engine(with_snapshots(Kind::PLAIN, 200, 1));
    engine.complete(text(1, 100));
    engine.complete(text(2, 100));
    engine.scheduler.clear_prefix_cache();
    CHECK(engine.scheduler.snapshots().n() == 0 && engine.scheduler.snapshots().n_bytes() == 0);
    CHECK(engine.complete(text(1, 100))->n_cached == 0 && engine.complete(text(2, 100))->n_cached == 0);
}

// --- eviction and preemption ---

void test_cached_slots_are_evicted_least_recently_used_first() {
    Engine engine({Kind::PLAIN, 300, 4});
    engine.complete(text(1, 80));
    engine.complete(text(2, 80));
    engine.complete(text(1, 80) + text(9, 1));  // now the second is the least recently used
    const auto a = engine.add(text(3, 80));
    engine.run_to(a, 150);
    CHECK(engine.scheduler.n_preemptions() == 0);
    engine.scheduler.end(*a, /*forget=*/true);
    CHECK(engine.complete(text(2, 80))->n_cached == 0);
    CHECK(engine.complete(text(1, 80))->n_cached == 79);
}

void test_the_least_recently_used_slot_is_reused() {
    Engine engine({Kind::PLAIN, 1000, 3});
    for (const int32_t topic : {1, 2, 3, 1, 4}) {
        engine.complete(text(topic, 40));
    }
    CHECK(engine.complete(text(3, 40))->n_cached == 39);
    CHECK(engine.complete(text(1, 40))->n_cached == 39);
    CHECK(engine.complete(text(4, 40))->n_cached == 39);
    CHECK(engine.complete(text(2, 40))->n_cached == 0);
}

// Sharing 40 of 200 tokens would leave the source slot intact if there were cells for both.
void test_the_source_slot_is_truncated_without_free_cells() {
    Engine engine({Kind::PLAIN, 300, 4});
    engine.complete(text(1, 200));
    CHECK(engine.complete(text(1, 40) + text(2, 110))->n_cached == 40);
    CHECK(engine.scheduler.n_cells_used() == 150);
}

void test_a_single_task_may_use_all_cells() {
    Engine engine({Kind::PLAIN, 300, 4});
    engine.complete(text(1, 200));
    engine.complete(text(2, 90));
    const auto a = engine.add(text(3, 100));
    engine.run_to(a, 300);
    engine.step();
    CHECK(a->n_past == 300 && a->n_preemptions == 0 && engine.cache.n_used() == 300);
}

void test_admission_needs_headroom() {
    Engine     engine({Kind::PLAIN, 200, 4});
    const auto a = engine.add(text(1, 100)), b = engine.add(text(2, 69));
    engine.step();
    CHECK(!b->is_running());  // 31 cells are left, for both to grow
    engine.scheduler.end(*a);
    engine.step();
    CHECK(b->is_running());
}

void test_no_task_overtakes_one_that_waits_for_cells() {
    Engine     engine({Kind::PLAIN, 200, 4});
    const auto a = engine.add(text(1, 100)), large = engine.add(text(2, 100)), small = engine.add(text(3, 5));
    engine.step();
    CHECK(a->is_running() && !large->is_running() && !small->is_running());
    engine.scheduler.end(*a);
    engine.step();
    CHECK(large->is_running() && small->is_running());
}

void test_the_youngest_task_is_preempted_and_computed_again() {
    Engine     engine({Kind::PLAIN, 200, 4});
    const auto a = engine.add(text(9, 20) + text(1, 30)), b = engine.add(text(9, 20) + text(2, 30));
    engine.run_to(a, 100);
    const Tokens so_far = b->tokens;
    CHECK(b->is_running() && so_far.size() > 90);
    engine.run_to(a, 120);
    CHECK(!b->is_running() && b->n_preemptions == 1 && b->n_past == 0 && a->n_preemptions == 0);
    engine.scheduler.end(*a);
    engine.run_to(b, 150);
    CHECK(std::equal(so_far.begin(), so_far.end(), b->tokens.begin()));
    CHECK(engine.scheduler.n_cached() == 20 &&
          b->n_cached == 0);  // a prefix found after a preemption does not count as cached
}

void test_free_cells_when_the_cache_is_full() {
    Engine engine;
    engine.complete(text(1, 50));
    const auto a = engine.add(text(2, 50)), b = engine.add(text(3, 50));
    engine.step();
    CHECK(engine.scheduler.free_cells() && a->is_running() && b->is_running());  // cached slots
    CHECK(engine.scheduler.n_cells_used() == engine.scheduler.n_cells_running());
    CHECK(engine.scheduler.free_cells() && a->is_running() && !b->is_running());
    CHECK(!engine.scheduler.free_cells() && a->is_running());
}

void test_evict_all_leaves_running_tasks() {
    Engine engine;
    engine.complete(text(1, 50));
    const auto a = engine.add(text(1, 50) + text(2, 50));
    engine.step();
    engine.complete(text(3, 50));
    engine.scheduler.evict_all();
    CHECK(a->n_cached == 50 && engine.cache.n_used() == a->n_past);
    engine.run_to(a, 150);
    engine.scheduler.end(*a);
    engine.scheduler.evict_all();
    CHECK(engine.scheduler.n_cells_used() == 0 && engine.cache.n_used() == 0);
}

// --- interrupted steps ---

void test_an_interrupted_step_is_rolled_back() {
    for (const Kind kind : {Kind::PLAIN, Kind::RECURRENT}) {
        Engine     engine({kind});
        const auto a = engine.add(text(1, 50)), b = engine.add(text(2, 150));
        engine.step();
        CHECK(a->n_past == 50 && b->n_past == 50);
        const Step step = engine.scheduler.next({100});
        engine.compute(step);
        engine.scheduler.rollback(step);
        // A state that cannot be rewound is computed again from the first token.
        const uint32_t n_left = kind == Kind::PLAIN ? 50 : 0;
        CHECK(a->n_past == n_left && b->n_past == n_left && a->is_running() == (n_left > 0));
        engine.run_to(a, 60);
        engine.run_to(b, 160);
    }
}

// What is computed, and cached for others, is what the remaining tokens are alone.
void test_dropped_tokens() {
    const auto history_of = [](const Tokens & tokens, size_t n) {
        return std::accumulate(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n), NO_HISTORY, grown);
    };
    for (const Kind kind : {Kind::PLAIN, Kind::WINDOW, Kind::RECURRENT}) {
        for (const uint32_t n_keep : {0u, 3u, 20u}) {
            Setting setting;
            setting.kind    = kind;
            setting.n_cells = 200;
            Engine     engine(setting);
            const auto task = engine.add(text(1, 30));
            engine.run_to(task, 40);
            const auto other = engine.add(text(1, 25) + text(2, 10));  // shares cells, if it can
            engine.run_to(other, 36);

            const Tokens before = task->tokens;
            engine.scheduler.drop_tokens(task, n_keep, 10);
            Tokens after = before;
            after.erase(after.begin() + n_keep, after.begin() + n_keep + 10);
            CHECK(task->tokens == after && task->n_dropped == 10 && task->n_past <= n_keep);
            engine.run_to(task, static_cast<uint32_t>(after.size()) + 5);
            CHECK(engine.cache.history(task->seq_id) == history_of(task->tokens, task->n_past));
            CHECK(task->tokens[after.size()] == next_token(history_of(after, after.size())));
            CHECK(engine.cache.history(other->seq_id) == history_of(other->tokens, other->n_past));

            const Tokens dropped = task->tokens;
            engine.scheduler.end(*task);
            const auto next = engine.add(dropped + text(3, 2));
            engine.step();
            CHECK(next->n_cached == dropped.size() - 1);
        }
    }
}

// Tasks may end or be preempted between the planning of a step and its result.
void test_tasks_that_end_during_a_step() {
    for (const bool rollback : {false, true}) {
        Engine     engine;
        const auto a = engine.add(text(1, 30)), b = engine.add(text(2, 30)), c = engine.add(text(3, 30));
        engine.step();
        const Step step = engine.scheduler.next({100});
        engine.compute(step);
        engine.scheduler.end(*a);
        CHECK(engine.scheduler.n_cells_used() == engine.cache.n_used());  // including b's and c's cells of this step
        if (rollback) {
            engine.scheduler.free_cells();  // cached by a
            engine.scheduler.free_cells();  // c
            engine.scheduler.rollback(step);
            CHECK(b->n_past == 30 && !c->is_running());
        } else {
            engine.scheduler.commit(step);
            CHECK(b->n_past == 31 && c->n_past == 31);
            b->tokens.push_back(7);
            c->tokens.push_back(7);
        }
        engine.run_to(b, 40);
        engine.run_to(c, 40);
    }
}

void test_ending() {
    Engine engine({Kind::PLAIN, 1000, 1});
    auto   a = engine.add(text(1, 50)), b = engine.add(text(2, 50)), c = engine.add(text(3, 50));
    engine.step();
    engine.scheduler.end(*b);  // in the queue
    const std::weak_ptr<Task> ended = a;
    a.reset();
    engine.scheduler.end(*engine.scheduler.running().front());  // the scheduler's was the last pointer to it
    CHECK(ended.expired());
    engine.run_to(c, 60);
    engine.scheduler.end(*c);
    CHECK(engine.scheduler.idle() && engine.scheduler.next({100}).empty());
}

// --- cells ---

void test_cells_are_counted_once() {
    KvCells cells(100, 3);
    cells.allocate(0, 40);
    cells.share(0, 1, 30);
    cells.share(1, 2, 10);
    cells.allocate(1, 5);
    CHECK(cells.n_free() == 55 && cells.n_used(1) == 35);
    CHECK(cells.n_used_by({0, 1, 2}) == 45 && cells.n_used_by({1, 2}) == 35 && cells.n_used_by({}) == 0);
    cells.truncate(0, 0);
    CHECK(cells.n_free() == 65);  // the others still hold the first 30
    cells.truncate(1, 20);
    CHECK(cells.n_free() == 80);
    cells.truncate(1, 0);
    CHECK(cells.n_free() == 90 && cells.n_used_by({2}) == 10);
    cells.allocate(0, 90);
    CHECK(cells.n_free() == 0 && cells.n_used_by({0, 2}) == 100);
}

void test_streams_have_cells_of_their_own() {
    KvCells cells(90, 3, 30);
    CHECK(cells.n_per_stream() == 30 && cells.n_per_sequence() == 30);
    cells.allocate(0, 20);
    cells.share(0, 1, 10);
    CHECK(cells.n_free() == 60 && cells.n_used_by({0, 1}) == 30);  // copies count
    cells.truncate(0, 0);
    CHECK(cells.n_free() == 80 && cells.n_used(1) == 10);
    CHECK(KvCells(90, 3).n_per_sequence() == 90);
}

// --- layout of the KV cache ---

KvLayout::Load load(size_t n_requests, uint32_t n_longest, uint64_t n_computed = 0) {
    return {n_requests, n_longest, n_computed};
}

void test_many_short_requests_divide_the_cache() {
    KvLayout layout(256, 4);
    CHECK(layout.next(0, load(3, 10)) == 0);
    CHECK(layout.next(0, load(4, 225)) == 0);  // an eighth of the stream stays free
    CHECK(layout.next(0, load(4, 224)) == 256);
    CHECK(layout.next(256, load(1, 256)) == 256);  // until one outgrows it
    CHECK(layout.next(256, load(4, 257)) == 0);
    KvLayout never(0, 1);
    CHECK(never.next(0, load(100, 1)) == 0);
}

void test_a_change_of_the_layout_has_to_pay() {
    KvLayout layout(256, 4);
    int      n = 0;
    while (layout.next(0, load(32, 200, 1600)) == 0) {
        n++;
    }
    CHECK(n == 100);  // 16 tokens a step
    CHECK(layout.next(256, load(8, 257)) == 0);
    for (n = 0; layout.next(0, load(8, 200)) == 0; n++) {}
    CHECK(n == 64);
    CHECK(layout.next(256, load(8, 257)) == 0);
    for (n = 0; layout.next(0, load(8, 200)) == 0; n++) {}
    CHECK(n == 128);  // longer after each request that outgrew its stream
    layout.disable();
    CHECK(layout.next(0, load(8, 100)) == 0);
}

}  // namespace

int main() {
    test_decoding_tasks_come_before_prefill_chunks();
    test_the_oldest_prompt_comes_first();
    test_a_short_prompt_does_not_wait_for_a_long_one();
    test_long_prompts_are_prefilled_one_at_a_time();
    test_prefill_budget_depends_on_streaming();
    test_steps_fill_micro_batches();
    test_decoding_tasks_alone_fill_a_micro_batch();
    test_all_logits_are_computed_alone_in_every_other_step();
    test_the_same_prompt_again();
    test_without_a_prefix_cache_nothing_is_cached();
    test_prefixes_are_shared_only_with_the_same_salt();
    test_groups_take_turns();
    test_new_groups_wait_for_older_ones();
    test_a_prompt_continues_from_the_longest_checkpoint();
    test_checkpoints_split_the_prefill();
    test_checkpoints_stay_within_their_bytes();
    test_a_checkpoint_that_cannot_be_restored();
    test_where_checkpoints_are_worth_it();
    test_evicted_slots_come_back_from_snapshots();
    test_a_snapshot_that_was_loaded_is_not_taken_again();
    test_a_longer_snapshot_replaces_its_prefix();
    test_part_of_a_snapshot();
    test_few_tokens_are_not_worth_a_snapshot();
    test_few_restored_tokens_are_used();
    test_snapshots_stay_within_their_bytes();
    test_a_preempted_task_continues_from_its_snapshot();
    test_most_of_a_slot_is_saved_before_it_is_truncated();
    test_a_snapshot_that_cannot_be_loaded();
    test_snapshots_belong_to_their_salt();
    test_an_added_snapshot_stays_until_it_is_used();
    test_a_prefix_that_is_added_again_is_kept_once();
    test_a_short_added_snapshot_is_used();
    test_an_added_prefix_outlives_longer_sequences();
    test_a_failed_copy_costs_no_shorter_snapshot();
    test_added_prefixes_of_two_layouts();
    test_a_fetched_snapshot_is_kept_for_its_task_only();
    test_a_fetched_snapshot_that_cannot_be_loaded_is_not_fetched_again();
    test_snapshots_of_another_layout_are_not_loaded();
    test_tasks_that_arrive_during_a_copy_wait_for_the_next_step();
    test_clear_prefix_cache();
    test_a_chat_grows_in_its_slot();
    test_a_long_sequence_is_not_truncated_for_a_short_prefix();
    test_prefixes_are_shared_with_running_tasks();
    test_a_task_waits_for_a_shared_prefix_in_prefill();
    test_short_shared_prefix_does_not_delay_admission();
    test_a_recurrent_state_cannot_be_rewound();
    test_a_sliding_window_drops_older_cells();
    test_cached_slots_are_evicted_least_recently_used_first();
    test_the_least_recently_used_slot_is_reused();
    test_the_source_slot_is_truncated_without_free_cells();
    test_a_single_task_may_use_all_cells();
    test_admission_needs_headroom();
    test_no_task_overtakes_one_that_waits_for_cells();
    test_the_youngest_task_is_preempted_and_computed_again();
    test_free_cells_when_the_cache_is_full();
    test_evict_all_leaves_running_tasks();
    test_an_interrupted_step_is_rolled_back();
    test_dropped_tokens();
    test_tasks_that_end_during_a_step();
    test_ending();
    test_cells_are_counted_once();
    test_streams_have_cells_of_their_own();
    test_many_short_requests_divide_the_cache();
    test_a_change_of_the_layout_has_to_pay();
}
