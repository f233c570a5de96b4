// The scheduler under random load: every request gets the tokens it would get alone, and every request ends.
//
//     test_scheduler_random [n_seeds [first_seed]]
#include "tests/support/simulated_cache.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>

namespace {

using pyg::Scheduler;
using pyg::Slice;
using pyg::Step;
using pyg::Task;
using Kind   = SimulatedCache::Kind;
using Tokens = std::vector<int32_t>;

constexpr uint32_t MIN_SHARED_PREFIX = 32;  // as in scheduler.cpp
constexpr uint32_t MAX_DISTURBANCES  = 20;  // each may cost a request all its work so far

class Random {
  public:
    explicit Random(uint32_t seed) : bits_(seed) {}

    uint32_t below(uint32_t n) { return static_cast<uint32_t>(bits_() % n); }
    uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool     percent(uint32_t p) { return below(100) < p; }

  private:
    std::mt19937 bits_;
};

std::vector<History> histories(const Tokens & tokens) {
    std::vector<History> result = {NO_HISTORY};
    for (const int32_t token_id : tokens) {
        result.push_back(grown(result.back(), token_id));
    }
    return result;
}

// A task and its expected result.
struct Request {
    std::shared_ptr<Task> task     = std::make_shared<Task>();
    uint32_t              n_prompt = 0;
    Tokens                alone;    // the prompt, then the model's answer without other tasks
    std::vector<History>  history;  // of the first n of them
    uint32_t              n_reserved = 0;
    bool                  admitted   = false;
    bool                  ended      = false;
    bool                  cancelled  = false;
};

// State of a running task before a step was planned.
struct Before {
    uint64_t arrival;
    int32_t  n_preemptions;
};

class Simulation {
  public:
    explicit Simulation(uint32_t seed);

    void run();

  private:
    static Scheduler::Limits draw_limits(Random & random);
    static Scheduler::Limits with_snapshots(Scheduler::Limits limits, Random & random);

    void                  draw_requests();
    Tokens                draw_prompt(size_t n_drawn, uint32_t longest);
    std::vector<uint32_t> draw_checkpoints(uint32_t n_prompt);
    uint32_t              n_until_checkpoint(const Task & task) const;
    Request &             request_of(const Task & task) { return *of_.at(&task); }

    void submit();
    void change_layout();
    Step plan();
    void guess(Step & step);
    void compute(const Step & step);
    void interrupt(const Step & step);
    void sample(const Step & step);
    void settle(const Slice & slice);
    void end(Request & request, bool cancelled);
    void cancel_some(uint32_t percent);

    void     check_step(const Step & step, const Scheduler::PrefillBudget & budget);
    void     check_slice(const Slice & slice);
    void     check_rows(const Step & step);
    void     check_mixed(const Step & step, const Scheduler::PrefillBudget & budget);
    void     check_preempted(const std::map<const Task *, Before> & before);
    void     check_admitted(std::map<const Task *, uint32_t> on_offer);
    bool     waits_for_a_prefix(const Task & task);
    uint32_t offered(const Request & request);
    void     check_places();
    void     check_cells();
    void     check_end();

    Random                  random_;
    Random                  tiers_;  // the other draws stay what they were
    const Kind              kind_;
    const Scheduler::Limits limits_;
    SimulatedCache          cache_;
    Scheduler               scheduler_;

    std::vector<Request>              requests_;
    std::map<const Task *, Request *> of_;
    size_t                            n_submitted_              = 0;
    uint64_t                          n_tokens_                 = 0;  // of all, at most
    uint32_t                          n_steps_                  = 0;
    uint32_t                          n_disturbances_           = 0;
    bool                              last_step_was_all_logits_ = false;
    bool                              cancels_                  = random_.percent(50);
    bool                              salted_                   = random_.percent(10);
    Random                            layouts_;
    bool                              divides_;        // the KV cache into streams, now and then
    uint32_t                          n_layouts_ = 0;  // changes of its layout
    Random                            guesses_;
    uint32_t                          percent_guessing_;  // of decoding tasks in a step
    uint32_t                          percent_right_;     // of guesses
};

Simulation::Simulation(uint32_t seed)
    : random_(seed), tiers_(seed + 1000000007u), kind_(random_.percent(60)   ? Kind::PLAIN
                                                       : random_.percent(50) ? Kind::WINDOW
                                                                             : Kind::RECURRENT),
      limits_(with_snapshots(draw_limits(random_), tiers_)), cache_(kind_, limits_.n_cells, limits_.n_seq),
      scheduler_(limits_, cache_), layouts_(~seed), divides_(kind_ == Kind::PLAIN && layouts_.percent(40)),
      guesses_(seed ^ 0x5bd1e995u), percent_guessing_(guesses_.percent(50) ? guesses_.below(101) : 0),
      percent_right_(guesses_.below(101)) {
    draw_requests();
    cache_.meanwhile = [this] {
        if (n_submitted_ < requests_.size() && tiers_.percent(10)) {
            submit();
        }
    };
}

uint64_t n_snapshot_hits = 0;  // of all simulations

// Snapshots take more bytes than checkpoints.
Scheduler::Limits Simulation::with_snapshots(Scheduler::Limits limits, Random & random) {
    if (random.percent(60)) {
        limits.prefix_cache_bytes = random.below(random.percent(50) ? 2000 : 20000);
    }
    return limits;
}

Scheduler::Limits Simulation::draw_limits(Random & random) {
    Scheduler::Limits limits;
    limits.n_seq              = static_cast<int32_t>(random.between(1, 6));
    limits.n_cells            = random.percent(20) ? random.between(8, 100) : random.between(100, 500);
    limits.n_batch            = static_cast<uint32_t>(limits.n_seq) + random.below(random.percent(50) ? 8 : 100);
    limits.n_rows             = random.between(1, std::min(16u, limits.n_batch));
    limits.prefix_cache       = random.percent(85);
    limits.prefix_cache_bytes = random.percent(50) ? 0 : 16 * random.between(1, 12);
    return limits;
}

void Simulation::draw_requests() {
    requests_.resize(random_.between(1, 30));
    const uint32_t prefer_throughput = random_.percent(50) ? 100 : random_.below(100);
    const uint32_t longest_prompt    = limits_.n_cells / random_.between(1, 8) + 1;
    const uint32_t longest_answer    = limits_.n_cells / random_.between(1, 8) + 1;
    for (size_t i = 0; i < requests_.size(); i++) {
        Request & request      = requests_[i];
        Task &    task         = *request.task;
        task.needs_all_logits  = random_.percent(8);
        task.prefer_throughput = random_.percent(prefer_throughput);
        task.tokens            = draw_prompt(i, std::min(longest_prompt, limits_.n_cells));
        request.n_prompt       = task.n_tokens();
        task.checkpoint_at     = draw_checkpoints(request.n_prompt);
        task.cache_salt        = salted_ ? random_.below(2) : 0;
        request.alone          = task.tokens;
        request.history        = histories(task.tokens);
        // The last token is never computed, so it may exceed the cells by one.
        const uint32_t n_room   = limits_.n_cells - request.n_prompt + 1;
        const uint32_t n_answer = task.needs_all_logits ? 0 : std::min(random_.between(1, longest_answer), n_room);
        while (request.alone.size() < request.n_prompt + n_answer) {
            request.alone.push_back(next_token(request.history.back()));
            request.history.push_back(grown(request.history.back(), request.alone.back()));
        }
        n_tokens_ += request.alone.size();
        of_[&task] = &request;
    }
}

std::vector<uint32_t> Simulation::draw_checkpoints(uint32_t n_prompt) {
    std::vector<uint32_t> lengths;
    for (uint32_t n = random_.between(1, 20); n < n_prompt; n += random_.between(1, 60)) {
        lengths.push_back(n);
    }
    return lengths;
}

// Tokens of a task that one step may prefill.
uint32_t Simulation::n_until_checkpoint(const Task & task) const {
    uint32_t n = task.n_pending();
    for (const uint32_t length : task.checkpoint_at) {
        if (limits_.prefix_cache && limits_.prefix_cache_bytes > 0 && length > task.n_past) {
            n = std::min(n, length - task.n_past);
        }
    }
    return n;
}

// A prefix of one of the first `n_drawn` requests, and new tokens.
Tokens Simulation::draw_prompt(size_t n_drawn, uint32_t longest) {
    const uint32_t n = random_.between(1, longest);
    Tokens         prompt;
    if (n_drawn > 0 && random_.percent(75)) {
        const Tokens & earlier  = requests_[random_.below(static_cast<uint32_t>(n_drawn))].alone;
        const uint32_t n_most   = std::min(n, static_cast<uint32_t>(earlier.size()));
        const uint32_t n_common = random_.percent(50) ? n_most : random_.between(1, n_most);
        prompt.assign(earlier.begin(), earlier.begin() + n_common);
    }
    while (prompt.size() < n) {
        prompt.push_back(static_cast<int32_t>(random_.below(3)));
    }
    return prompt;
}

void Simulation::run() {
    const uint32_t arrivals     = random_.between(1, 90);
    const uint32_t disturbances = random_.percent(50) ? 0 : random_.below(10);
    while (n_submitted_ < requests_.size() || !scheduler_.idle()) {
        while (n_submitted_ < requests_.size() && random_.percent(arrivals)) {
            submit();
        }
        if (random_.percent(30)) {
            cancel_some(1);
        }
        if (random_.percent(1)) {
            scheduler_.evict_all();
        }
        if (divides_) {
            change_layout();
        }
        Step step = plan();
        if (step.empty()) {
            continue;
        }
        guess(step);
        if (n_disturbances_ < MAX_DISTURBANCES && random_.percent(disturbances)) {
            n_disturbances_++;
            cache_.fail_restores(random_.below(3));
            interrupt(step);
        } else {
            compute(step);
            sample(step);
        }
        check_places();
        check_cells();
    }
    check_end();
}

void Simulation::submit() { scheduler_.add(requests_[n_submitted_++].task); }

// Divide the KV cache into streams or unify it, if no request is too long for that.
void Simulation::change_layout() {
    const uint32_t n_per_stream = limits_.n_cells / static_cast<uint32_t>(limits_.n_seq);
    const bool     is_divided   = scheduler_.n_per_stream() > 0;
    const bool     fits         = n_per_stream > 0 && scheduler_.n_tokens_of_longest() <= n_per_stream;
    const bool     may_change   = n_layouts_ < MAX_DISTURBANCES;
    if (is_divided ? !fits || (may_change && layouts_.percent(2)) : fits && may_change && layouts_.percent(20)) {
        n_layouts_++;
        scheduler_.preempt_all();
        check_cells();
        cache_.replace(is_divided ? 0 : n_per_stream);
        scheduler_.set_layout(is_divided ? 0 : n_per_stream);
    }
}

Step Simulation::plan() {
    std::map<const Task *, Before>   before;
    std::map<const Task *, uint32_t> on_offer;
    for (const auto & task : scheduler_.running()) {
        before[task.get()] = {task->arrival, task->n_preemptions};
    }
    for (const auto & task : scheduler_.waiting()) {
        on_offer[task.get()] = offered(request_of(*task));
    }
    const uint64_t                 n_dropped = cache_.n_dropped();
    const Scheduler::PrefillBudget budget = {random_.between(1, limits_.n_batch), random_.between(1, limits_.n_batch),
                                             random_.between(1, limits_.n_batch)};

    Step step = scheduler_.next(budget);

    for (const auto & task : scheduler_.running()) {
        request_of(*task).n_reserved = task->n_tokens();
    }
    if (cache_.n_dropped() != n_dropped) {
        on_offer.clear();  // some of it may have been evicted first
    }
    check_places();
    check_cells();
    check_preempted(before);
    check_admitted(on_offer);
    check_step(step, budget);
    if (!step.empty() && cancels_ && random_.percent(2)) {  // cancel one of them before anything is computed
        end(request_of(*step.slices[random_.below(static_cast<uint32_t>(step.slices.size()))].task), true);
        return plan();
    }
    return step;
}

// Guess the next tokens of some decoding tasks, as the engine does: fewer than are left, so that one is sampled after
// them.
void Simulation::guess(Step & step) {
    if (kind_ == Kind::RECURRENT || scheduler_.n_per_stream() > 0) {
        return;
    }
    for (const Slice & slice : step.slices) {
        Task &       task  = *slice.task;
        const auto & alone = request_of(task).alone;
        if (slice.n > 1 || !slice.reaches_end() || !guesses_.percent(percent_guessing_) ||
            n_disturbances_ >= MAX_DISTURBANCES) {
            continue;
        }
        Tokens       guessed;
        const size_t n_most = std::min<size_t>(guesses_.between(1, 6), alone.size() - task.n_tokens() - 1);
        while (guessed.size() < n_most) {
            const int32_t right = alone[task.n_tokens() + guessed.size()];
            guessed.push_back(guesses_.percent(percent_right_) ? right : static_cast<int32_t>(guesses_.below(3)));
        }
        scheduler_.add_guesses(step, task, guessed);
        CHECK(std::equal(task.guesses.begin(), task.guesses.end(), guessed.begin()));
    }
    uint32_t n = 0;
    for (const Slice & slice : step.slices) {
        n += slice.n_columns();
    }
    CHECK(step.n_tokens == n && n <= limits_.n_batch && scheduler_.n_cells_used() <= scheduler_.n_cells());
}

void Simulation::compute(const Step & step) {
    for (const Slice & slice : step.slices) {
        for (uint32_t i = slice.first; i < slice.first + slice.n; i++) {
            cache_.compute(slice.task->seq_id, slice.task->tokens[i]);
        }
        for (const int32_t guess : slice.task->guesses) {
            cache_.compute(slice.task->seq_id, guess);
        }
    }
    if (random_.percent(5)) {
        cancel_some(5);
    }
    scheduler_.commit(step);
}

// An abort within a step, because a request was cancelled or no cell was found.
void Simulation::interrupt(const Step & step) {
    for (const Slice & slice : step.slices) {
        const uint32_t n = random_.between(0, slice.n);
        for (uint32_t i = slice.first; i < slice.first + n; i++) {
            cache_.compute(slice.task->seq_id, slice.task->tokens[i]);
        }
        const auto n_guesses = static_cast<uint32_t>(slice.task->guesses.size());
        for (uint32_t k = n == slice.n ? guesses_.below(n_guesses + 1) : 0; k-- > 0;) {
            cache_.compute(slice.task->seq_id, slice.task->guesses[k]);  // in any order: they are dropped
        }
        if (n > 0) {
            cache_.damage(slice.task->seq_id);
        }
    }
    const bool no_room = random_.percent(30), early = random_.percent(50);
    if (early) {
        cancel_some(5);
    }
    if (no_room && early) {
        scheduler_.free_cells();
    }
    scheduler_.rollback(step);
    if (no_room && !early) {
        const bool more = scheduler_.n_cells_used() > scheduler_.n_cells_running() || scheduler_.running().size() > 1;
        CHECK(scheduler_.free_cells() || !more);
    }
}

void Simulation::sample(const Step & step) {
    for (const Slice & slice : step.slices) {
        Request & request = request_of(*slice.task);
        Task &    task    = *slice.task;
        if (request.ended) {
            continue;
        }
        CHECK(slice.reaches_end() == (task.n_pending() == 0 && !task.needs_all_logits));
        if (task.needs_all_logits && task.n_pending() == 0) {
            end(request, false);
        } else if (slice.reaches_end()) {
            const uint32_t n_before = task.n_tokens();
            bool           is_right = true, ends = false;
            for (uint32_t i = 0; is_right && i <= task.guesses.size(); i++) {
                const int32_t token_id = next_token(cache_.history(task.seq_id, n_before + i));
                CHECK(token_id == request.alone[task.n_tokens()]);
                is_right = i < task.guesses.size() && token_id == task.guesses[i];
                ends     = task.n_tokens() + 1 == request.alone.size();
                if (!ends) {
                    task.tokens.push_back(token_id);
                }
            }
            settle(slice);
            if (ends) {
                end(request, false);
            }
        }
    }
}

// Keep the guesses that were right.
void Simulation::settle(const Slice & slice) {
    Task &         task      = *slice.task;
    const uint32_t n_guesses = static_cast<uint32_t>(task.guesses.size());
    const uint32_t n_kept    = scheduler_.keep_right_guesses(slice);
    CHECK(task.guesses.empty() && n_kept <= n_guesses);
    if (!task.is_running()) {  // a window has dropped too many cells
        CHECK(kind_ == Kind::WINDOW && n_kept < n_guesses);
        n_disturbances_++;
    } else {
        CHECK(task.n_past == slice.first + slice.n + n_kept);
        request_of(task).n_reserved = std::max(request_of(task).n_reserved, task.n_past);
    }
}

void Simulation::end(Request & request, bool cancelled) {
    CHECK(!request.ended);
    request.ended     = true;
    request.cancelled = cancelled;
    scheduler_.end(*request.task, cancelled && random_.percent(20));
    CHECK(!request.task->is_running());
}

void Simulation::cancel_some(uint32_t percent) {
    for (size_t i = 0; cancels_ && i < n_submitted_; i++) {
        if (!requests_[i].ended && random_.percent(percent)) {
            end(requests_[i], true);
        }
    }
}

void Simulation::check_step(const Step & step, const Scheduler::PrefillBudget & budget) {
    CHECK(step.empty() == scheduler_.idle());
    uint32_t n = 0;
    for (const Slice & slice : step.slices) {
        check_slice(slice);
        n += slice.n;
    }
    CHECK(step.n_tokens == n && n <= limits_.n_batch);
    if (step.empty()) {
        last_step_was_all_logits_ = false;
        return;
    }
    if (step.slices[0].task->needs_all_logits) {
        check_rows(step);
    } else {
        check_mixed(step, budget);
    }
    // Enough steps to compute every token of every request alone, twice, and again after each disturbance and
    // each change of the layout.
    CHECK(++n_steps_ <= 2 * n_tokens_ + (n_disturbances_ + n_layouts_) * limits_.n_cells);
}

// The slice continues its slot, and the slot holds the task's own tokens.
void Simulation::check_slice(const Slice & slice) {
    const Task & task = *slice.task;
    CHECK(task.is_running() && slice.n > 0 && slice.first == task.n_past && slice.first + slice.n <= task.n_tokens());
    CHECK(cache_.n_used(task.seq_id) == slice.first);
    CHECK(cache_.history(task.seq_id) == request_of(task).history[slice.first]);
    CHECK(std::equal(task.tokens.begin(), task.tokens.end(), request_of(task).alone.begin()));
}

void Simulation::check_rows(const Step & step) {
    const auto others = [](const auto & task) { return !task->needs_all_logits; };
    CHECK(step.slices.size() == 1 && step.n_tokens <= limits_.n_rows);
    CHECK(!last_step_was_all_logits_ || std::none_of(scheduler_.running().begin(), scheduler_.running().end(), others));
    last_step_was_all_logits_ = true;
}

// One token for every decoding task, then prefill chunks until the batch or the budget is full: at least a quarter for
// the oldest prompt, and all for the shortest one that does not prefer throughput if it fits in the rest.
void Simulation::check_mixed(const Step & step, const Scheduler::PrefillBudget & budget) {
    std::map<const Task *, uint32_t> taken;
    for (const Slice & slice : step.slices) {
        CHECK(!slice.task->needs_all_logits && taken.emplace(slice.task.get(), slice.n).second);
    }
    uint32_t                                     n_decoding = 0, n_pending = 0, n_prompt = 0;
    bool                                         watched = false, watched_decodes = false;
    std::optional<std::pair<uint32_t, uint32_t>> oldest, shortest;  // what each gets and could get
    uint32_t                                     least = UINT32_MAX;
    for (const auto & task : scheduler_.running()) {
        CHECK(!task->needs_all_logits || last_step_was_all_logits_);
        const uint32_t n = taken.count(task.get()) ? taken[task.get()] : 0;
        watched |= !task->needs_all_logits && !task->prefer_throughput;
        watched_decodes |= !task->needs_all_logits && !task->prefer_throughput && task->n_pending() == 1;
        if (task->needs_all_logits) {
            CHECK(n == 0);
        } else if (task->n_pending() == 1) {
            CHECK(n == 1);
            n_decoding++;
        } else {
            const uint32_t most = n_until_checkpoint(*task);
            oldest              = oldest ? oldest : std::make_pair(n, most);
            if (!task->prefer_throughput && task->n_pending() < least) {
                least    = task->n_pending();
                shortest = {n, most};
            }
            n_pending += most;
            n_prompt += n;
        }
    }
    const uint32_t prefill_tokens = watched_decodes ? budget.with_decode
                                    : watched       ? budget.without_decode
                                                    : budget.throughput;
    const uint32_t n_budget       = std::min(limits_.n_batch - n_decoding, prefill_tokens);
    CHECK(n_prompt == std::min(n_pending, n_budget));
    CHECK(!oldest || oldest->first >= std::min(oldest->second, n_budget / 4));
    CHECK(!shortest || shortest->first >= std::min(shortest->second, n_budget - n_budget / 4));
    last_step_was_all_logits_ = false;
}

// Only the youngest running tasks were preempted.
void Simulation::check_preempted(const std::map<const Task *, Before> & before) {
    for (const auto & [victim, was] : before) {
        if (victim->n_preemptions == was.n_preemptions) {
            continue;
        }
        CHECK(victim->n_preemptions == was.n_preemptions + 1);
        for (const auto & [other, other_was] : before) {
            CHECK(other->n_preemptions > other_was.n_preemptions || other_was.arrival < was.arrival);
        }
    }
}

// An admitted task starts with what the cache really holds, before all later ones.
void Simulation::check_admitted(std::map<const Task *, uint32_t> on_offer) {
    uint64_t last = 0;
    for (const auto & task : scheduler_.running()) {
        Request & request = request_of(*task);
        if (!request.admitted) {
            request.admitted = true;
            last             = std::max(last, task->arrival);
            CHECK(task->n_cached == task->n_past && task->n_past < request.n_prompt);
        }
        if (const auto offer = on_offer.find(task.get()); offer != on_offer.end()) {
            CHECK(task->n_past == offer->second || (limits_.prefix_cache_bytes > 0 && task->n_past > offer->second) ||
                  (salted_ && task->n_past < offer->second));
            if (!cache_.can_share_cells()) {
                on_offer.clear();  // it may have taken over the slot of the next one's prefix
            }
        }
    }
    for (const auto & task : scheduler_.waiting()) {
        CHECK(request_of(*task).admitted || task->arrival > last || waits_for_a_prefix(*task));
    }
}

bool Simulation::waits_for_a_prefix(const Task & task) {
    return std::any_of(scheduler_.running().begin(), scheduler_.running().end(), [&](const auto & other) {
        const uint32_t n_most = std::min(other->n_tokens(), task.n_tokens() - 1);
        const auto     differ = std::mismatch(task.tokens.begin(), task.tokens.begin() + n_most, other->tokens.begin());
        const auto     common = static_cast<uint32_t>(differ.first - task.tokens.begin());
        return other->arrival < task.arrival && common >= other->n_past + MIN_SHARED_PREFIX;
    });
}

// Longest usable prefix of a request in the cache.
uint32_t Simulation::offered(const Request & request) {
    if (!limits_.prefix_cache || request.task->needs_all_logits) {
        return 0;
    }
    uint32_t best = 0;
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        const bool taken = std::any_of(scheduler_.running().begin(), scheduler_.running().end(),
                                       [&](const auto & task) { return task->seq_id == seq_id; });
        uint32_t   n     = std::min(cache_.n_used(seq_id), request.task->n_tokens() - 1);
        while (n > 0 && cache_.history(seq_id, n) != request.history[n]) {
            n--;
        }
        if (n > best && (!taken || cache_.can_share_cells()) && cache_.can_truncate_to(seq_id, n)) {
            best = n;
        }
    }
    return best;
}

// Every request is in one queue, in order of arrival, and no slot has two requests.
void Simulation::check_places() {
    std::map<const Task *, int> places;
    std::vector<bool>           taken(static_cast<size_t>(limits_.n_seq), false);
    uint64_t                    last = 0;
    for (const auto & task : scheduler_.running()) {
        CHECK(task->is_running() && task->seq_id < limits_.n_seq && !taken[static_cast<size_t>(task->seq_id)]);
        taken[static_cast<size_t>(task->seq_id)] = true;
        CHECK(places.empty() || task->arrival > last);
        CHECK(task->n_past < task->n_tokens() && task->n_past == cache_.n_used(task->seq_id));
        last = task->arrival;
        places[task.get()]++;
    }
    last = 0;
    for (const auto & task : scheduler_.waiting()) {
        CHECK(!task->is_running() && task->n_past == 0 && (last == 0 || task->arrival > last));
        last = task->arrival;
        places[task.get()]++;
    }
    for (size_t i = 0; i < n_submitted_; i++) {
        const auto place = places.find(requests_[i].task.get());
        CHECK((place == places.end()) == requests_[i].ended && (requests_[i].ended || place->second == 1));
    }
    CHECK(scheduler_.idle() == places.empty());
}

// The bookkeeping equals the cells in the cache plus those reserved for the next tokens.
void Simulation::check_cells() {
    std::vector<int32_t> seq_ids;
    uint32_t             n_reserved = 0;
    for (const auto & task : scheduler_.running()) {
        seq_ids.push_back(task->seq_id);
        n_reserved += request_of(*task).n_reserved - task->n_past;
    }
    CHECK(scheduler_.n_cells_used() == cache_.n_used() + n_reserved);
    CHECK(scheduler_.n_cells_running() == cache_.n_used_by(seq_ids) + n_reserved);
    CHECK(scheduler_.n_cells_used() <= scheduler_.n_cells());
}

void Simulation::check_end() {
    uint64_t n_preemptions = 0;
    for (const Request & request : requests_) {
        CHECK(request.ended && (request.cancelled ||
                                request.task->n_tokens() + !request.task->needs_all_logits == request.alone.size()));
        n_preemptions += static_cast<uint64_t>(request.task->n_preemptions);
    }
    CHECK(scheduler_.n_preemptions() == n_preemptions);
    n_snapshot_hits += scheduler_.n_snapshot_hits();
    const size_t n_saved = scheduler_.checkpoints().n_bytes() + scheduler_.snapshots().n_bytes();
    CHECK(n_saved <= limits_.prefix_cache_bytes);
    CHECK(limits_.prefix_cache || scheduler_.n_cached() == 0);
    CHECK(limits_.prefix_cache || cache_.n_used() == 0);
    scheduler_.evict_all();
    CHECK(scheduler_.n_cells_used() == 0 && cache_.n_used() == 0 && !scheduler_.free_cells());
    CHECK(scheduler_.next({1}).empty());
}

uint32_t seed;  // of the simulation that runs
bool     done = false;

void tell_seed() {
    if (!done) {
        std::fprintf(stderr, "seed %u\n", seed);
    }
}

}  // namespace

int main(int argc, char ** argv) {
    const uint32_t n_seeds = argc > 1 ? static_cast<uint32_t>(std::stoul(argv[1])) : 2000;
    const uint32_t first   = argc > 2 ? static_cast<uint32_t>(std::stoul(argv[2])) : 0;
    std::atexit(tell_seed);
    for (seed = first; seed - first < n_seeds; seed++) {
        Simulation(seed).run();
    }
    CHECK(n_seeds < 100 || n_snapshot_hits > 0);
    done = true;
}
