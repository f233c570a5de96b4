// The scheduler under random load: whatever comes, and whenever it leaves, every request gets the tokens that it would
// get alone, and nobody is forgotten.
//
//     test_scheduler_random [n_seeds [first_seed]]
#include "simulated_cache.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

namespace {

using pyg::Job;
using pyg::Scheduler;
using pyg::Slice;
using pyg::Step;
using Kind   = SimulatedCache::Kind;
using Tokens = std::vector<int32_t>;

constexpr uint32_t WORTH_WAITING    = 32;  // as the scheduler has it
constexpr uint32_t MAX_DISTURBANCES = 20;  // from outside: each may cost a request all the work done so far

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

// A job, and what has to come out of it.
struct Request {
    std::shared_ptr<Job> job      = std::make_shared<Job>();
    uint32_t             n_prompt = 0;
    Tokens               alone;    // the prompt, then what the model answers when nobody else is there
    std::vector<History> history;  // of the first n of them
    uint32_t             n_reserved = 0;
    bool                 admitted   = false;
    bool                 ended      = false;
    bool                 cancelled  = false;
};

// What was true of a running job before a step was planned.
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

    void      draw_requests();
    Tokens    draw_prompt(size_t n_drawn, uint32_t longest);
    Request & request_of(const Job & job) { return *of_.at(&job); }

    void submit();
    Step plan();
    void compute(const Step & step);
    void interrupt(const Step & step);
    void sample(const Step & step);
    void end(Request & request, bool cancelled);
    void cancel_some(uint32_t percent);

    void     check_step(const Step & step, uint32_t n_prefill);
    void     check_slice(const Slice & slice);
    void     check_rows(const Step & step);
    void     check_mixed(const Step & step, uint32_t n_prefill);
    void     check_preempted(const std::map<const Job *, Before> & before);
    void     check_admitted(std::map<const Job *, uint32_t> on_offer);
    bool     waits_for_a_prefix(const Job & job);
    uint32_t offered(const Request & request);
    void     check_places();
    void     check_cells();
    void     check_end();

    Random                  random_;
    const Kind              kind_;
    const Scheduler::Limits limits_;
    SimulatedCache          cache_;
    Scheduler               scheduler_;

    std::vector<Request>             requests_;
    std::map<const Job *, Request *> of_;
    size_t                           n_submitted_        = 0;
    uint64_t                         n_tokens_           = 0;  // of all, at most
    uint32_t                         n_steps_            = 0;
    uint32_t                         n_disturbances_     = 0;
    bool                             rows_had_last_step_ = false;
    bool                             cancels_            = random_.percent(50);
};

Simulation::Simulation(uint32_t seed)
    : random_(seed), kind_(random_.percent(60)   ? Kind::PLAIN
                           : random_.percent(50) ? Kind::WINDOW
                                                 : Kind::RECURRENT),
      limits_(draw_limits(random_)), cache_(kind_, limits_.n_cells, limits_.n_seq), scheduler_(limits_, cache_) {
    draw_requests();
}

Scheduler::Limits Simulation::draw_limits(Random & random) {
    Scheduler::Limits limits;
    limits.n_seq        = static_cast<int32_t>(random.between(1, 6));
    limits.n_cells      = random.percent(20) ? random.between(8, 100) : random.between(100, 500);
    limits.n_batch      = static_cast<uint32_t>(limits.n_seq) + random.below(random.percent(50) ? 8 : 100);
    limits.n_rows       = random.between(1, std::min(16u, limits.n_batch));
    limits.prefix_cache = random.percent(85);
    return limits;
}

void Simulation::draw_requests() {
    requests_.resize(random_.between(1, 30));
    const uint32_t longest_prompt = limits_.n_cells / random_.between(1, 8) + 1;
    const uint32_t longest_answer = limits_.n_cells / random_.between(1, 8) + 1;
    for (size_t i = 0; i < requests_.size(); i++) {
        Request & request = requests_[i];
        Job &     job     = *request.job;
        job.every_row     = random_.percent(8);
        job.tokens        = draw_prompt(i, std::min(longest_prompt, limits_.n_cells));
        request.n_prompt  = job.n_tokens();
        request.alone     = job.tokens;
        request.history   = histories(job.tokens);
        // The last token of an answer is never computed, so it may be the one for which there is no room.
        const uint32_t n_room   = limits_.n_cells - request.n_prompt + 1;
        const uint32_t n_answer = job.every_row ? 0 : std::min(random_.between(1, longest_answer), n_room);
        while (request.alone.size() < request.n_prompt + n_answer) {
            request.alone.push_back(next_token(request.history.back()));
            request.history.push_back(grown(request.history.back(), request.alone.back()));
        }
        n_tokens_ += request.alone.size();
        of_[&job] = &request;
    }
}

// A beginning of what one of the first `n_drawn` requests had, and something new.
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
            scheduler_.forget();
        }
        const Step step = plan();
        if (step.empty()) {
            continue;
        }
        if (n_disturbances_ < MAX_DISTURBANCES && random_.percent(disturbances)) {
            n_disturbances_++;
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

void Simulation::submit() { scheduler_.add(requests_[n_submitted_++].job); }

Step Simulation::plan() {
    std::map<const Job *, Before>   before;
    std::map<const Job *, uint32_t> on_offer;
    for (const auto & job : scheduler_.running()) {
        before[job.get()] = {job->arrival, job->n_preemptions};
    }
    for (const auto & job : scheduler_.waiting()) {
        on_offer[job.get()] = offered(request_of(*job));
    }
    const uint64_t n_dropped = cache_.n_dropped();
    const uint32_t n_prefill = random_.between(1, limits_.n_batch);

    Step step = scheduler_.next(n_prefill);

    for (const auto & job : scheduler_.running()) {
        request_of(*job).n_reserved = job->n_tokens();
    }
    if (cache_.n_dropped() != n_dropped) {
        on_offer.clear();  // something of it may have gone first
    }
    check_places();
    check_cells();
    check_preempted(before);
    check_admitted(on_offer);
    check_step(step, n_prefill);
    if (!step.empty() && cancels_ && random_.percent(2)) {  // one of them is cancelled before anything is computed
        end(request_of(*step.slices[random_.below(static_cast<uint32_t>(step.slices.size()))].job), true);
        return plan();
    }
    return step;
}

void Simulation::compute(const Step & step) {
    for (const Slice & slice : step.slices) {
        for (uint32_t i = slice.first; i < slice.first + slice.n; i++) {
            cache_.compute(slice.job->seq_id, slice.job->tokens[i]);
        }
    }
    if (random_.percent(5)) {
        cancel_some(5);
    }
    scheduler_.computed(step);
}

// An abort somewhere in a step, because a request was cancelled, or because the memory found no room.
void Simulation::interrupt(const Step & step) {
    for (const Slice & slice : step.slices) {
        const uint32_t n = random_.between(0, slice.n);
        for (uint32_t i = slice.first; i < slice.first + n; i++) {
            cache_.compute(slice.job->seq_id, slice.job->tokens[i]);
        }
        if (n > 0) {
            cache_.damage(slice.job->seq_id);
        }
    }
    const bool no_room = random_.percent(30), early = random_.percent(50);
    if (early) {
        cancel_some(5);
    }
    if (no_room && early) {
        scheduler_.give_room();
    }
    scheduler_.interrupted(step);
    if (no_room && !early) {
        const bool more = scheduler_.n_cells_used() > scheduler_.n_cells_running() || scheduler_.running().size() > 1;
        CHECK(scheduler_.give_room() || !more);
    }
}

void Simulation::sample(const Step & step) {
    for (const Slice & slice : step.slices) {
        Request & request = request_of(*slice.job);
        Job &     job     = *slice.job;
        if (request.ended) {
            continue;
        }
        CHECK(slice.ends() == (job.n_pending() == 0 && !job.every_row));
        if (job.every_row && job.n_pending() == 0) {
            end(request, false);
        } else if (slice.ends()) {
            const int32_t token_id = next_token(cache_.history(job.seq_id));
            CHECK(token_id == request.alone[job.n_tokens()]);
            if (job.n_tokens() + 1 == request.alone.size()) {
                end(request, false);
            } else {
                job.tokens.push_back(token_id);
            }
        }
    }
}

void Simulation::end(Request & request, bool cancelled) {
    CHECK(!request.ended);
    request.ended     = true;
    request.cancelled = cancelled;
    scheduler_.end(*request.job, cancelled && random_.percent(20));
    CHECK(!request.job->runs());
}

void Simulation::cancel_some(uint32_t percent) {
    for (size_t i = 0; cancels_ && i < n_submitted_; i++) {
        if (!requests_[i].ended && random_.percent(percent)) {
            end(requests_[i], true);
        }
    }
}

void Simulation::check_step(const Step & step, uint32_t n_prefill) {
    CHECK(step.empty() == scheduler_.idle());
    uint32_t n = 0;
    for (const Slice & slice : step.slices) {
        check_slice(slice);
        n += slice.n;
    }
    CHECK(step.n_tokens == n && n <= limits_.n_batch);
    if (step.empty()) {
        rows_had_last_step_ = false;
        return;
    }
    if (step.slices[0].job->every_row) {
        check_rows(step);
    } else {
        check_mixed(step, n_prefill);
    }
    // Enough to compute every token of every request in a step of its own, twice, and again after each disturbance.
    CHECK(++n_steps_ <= 2 * n_tokens_ + n_disturbances_ * limits_.n_cells);
}

// It goes on where its sequence stands, and what lies there are its own tokens.
void Simulation::check_slice(const Slice & slice) {
    const Job & job = *slice.job;
    CHECK(job.runs() && slice.n > 0 && slice.first == job.n_past && slice.first + slice.n <= job.n_tokens());
    CHECK(cache_.n_held(job.seq_id) == slice.first);
    CHECK(cache_.history(job.seq_id) == request_of(job).history[slice.first]);
    CHECK(std::equal(job.tokens.begin(), job.tokens.end(), request_of(job).alone.begin()));
}

void Simulation::check_rows(const Step & step) {
    const auto others = [](const auto & job) { return !job->every_row; };
    CHECK(step.slices.size() == 1 && step.n_tokens <= limits_.n_rows);
    CHECK(!rows_had_last_step_ || std::none_of(scheduler_.running().begin(), scheduler_.running().end(), others));
    rows_had_last_step_ = true;
}

// A token for everybody who decodes, then prompts, the oldest first, as far as the batch reaches.
void Simulation::check_mixed(const Step & step, uint32_t n_prefill) {
    std::map<const Job *, uint32_t> taken;
    for (const Slice & slice : step.slices) {
        CHECK(!slice.job->every_row && taken.emplace(slice.job.get(), slice.n).second);
    }
    uint32_t n_decoding = 0, n_pending = 0, n_prompt = 0;
    bool     all = true;
    for (const auto & job : scheduler_.running()) {
        CHECK(!job->every_row || rows_had_last_step_);
        const uint32_t n = taken.count(job.get()) ? taken[job.get()] : 0;
        if (job->every_row) {
            CHECK(n == 0);
        } else if (job->n_pending() == 1) {
            CHECK(n == 1);
            n_decoding++;
        } else {
            CHECK(all || n == 0);
            all = n == job->n_pending();
            n_pending += job->n_pending();
            n_prompt += n;
        }
    }
    const uint32_t n_most = limits_.n_batch - n_decoding;
    CHECK(n_prompt == std::min(n_pending, n_decoding > 0 ? std::min(n_most, n_prefill) : n_most));
    rows_had_last_step_ = false;
}

// Only the youngest of those that ran gave their room away.
void Simulation::check_preempted(const std::map<const Job *, Before> & before) {
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

// Who starts, starts with what really lay there, and before all who came later.
void Simulation::check_admitted(std::map<const Job *, uint32_t> on_offer) {
    uint64_t last = 0;
    for (const auto & job : scheduler_.running()) {
        Request & request = request_of(*job);
        if (!request.admitted) {
            request.admitted = true;
            last             = std::max(last, job->arrival);
            CHECK(job->n_reused == job->n_past && job->n_past < request.n_prompt);
        }
        if (const auto offer = on_offer.find(job.get()); offer != on_offer.end()) {
            CHECK(job->n_past == offer->second);
            if (!cache_.can_share()) {
                on_offer.clear();  // it may have taken what the next one was offered
            }
        }
    }
    for (const auto & job : scheduler_.waiting()) {
        CHECK(request_of(*job).admitted || job->arrival > last || waits_for_a_prefix(*job));
    }
}

bool Simulation::waits_for_a_prefix(const Job & job) {
    return std::any_of(scheduler_.running().begin(), scheduler_.running().end(), [&](const auto & other) {
        const uint32_t n_most = std::min(other->n_tokens(), job.n_tokens() - 1);
        const auto     differ = std::mismatch(job.tokens.begin(), job.tokens.begin() + n_most, other->tokens.begin());
        const auto     common = static_cast<uint32_t>(differ.first - job.tokens.begin());
        return other->arrival < job.arrival && common >= other->n_past + WORTH_WAITING;
    });
}

// The longest beginning of a request that lies in the cache and can be used.
uint32_t Simulation::offered(const Request & request) {
    if (!limits_.prefix_cache || request.job->every_row) {
        return 0;
    }
    uint32_t best = 0;
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        const bool taken = std::any_of(scheduler_.running().begin(), scheduler_.running().end(),
                                       [&](const auto & job) { return job->seq_id == seq_id; });
        uint32_t   n     = std::min(cache_.n_held(seq_id), request.job->n_tokens() - 1);
        while (n > 0 && cache_.history(seq_id, n) != request.history[n]) {
            n--;
        }
        if (n > best && (!taken || cache_.can_share()) && cache_.can_keep(seq_id, n)) {
            best = n;
        }
    }
    return best;
}

// Every request is in one place, in order of arrival, and no sequence has two.
void Simulation::check_places() {
    std::map<const Job *, int> places;
    std::vector<bool>          taken(static_cast<size_t>(limits_.n_seq), false);
    uint64_t                   last = 0;
    for (const auto & job : scheduler_.running()) {
        CHECK(job->runs() && job->seq_id < limits_.n_seq && !taken[static_cast<size_t>(job->seq_id)]);
        taken[static_cast<size_t>(job->seq_id)] = true;
        CHECK(places.empty() || job->arrival > last);
        CHECK(job->n_past < job->n_tokens() && job->n_past == cache_.n_held(job->seq_id));
        last = job->arrival;
        places[job.get()]++;
    }
    last = 0;
    for (const auto & job : scheduler_.waiting()) {
        CHECK(!job->runs() && job->n_past == 0 && (last == 0 || job->arrival > last));
        last = job->arrival;
        places[job.get()]++;
    }
    for (size_t i = 0; i < n_submitted_; i++) {
        const auto place = places.find(requests_[i].job.get());
        CHECK((place == places.end()) == requests_[i].ended && (requests_[i].ended || place->second == 1));
    }
    CHECK(scheduler_.idle() == places.empty());
}

// The bookkeeping is what the cache holds and what is reserved for the tokens that come next.
void Simulation::check_cells() {
    std::vector<int32_t> seq_ids;
    uint32_t             n_reserved = 0;
    for (const auto & job : scheduler_.running()) {
        seq_ids.push_back(job->seq_id);
        n_reserved += request_of(*job).n_reserved - job->n_past;
    }
    CHECK(scheduler_.n_cells_used() == cache_.n_used() + n_reserved);
    CHECK(scheduler_.n_cells_running() == cache_.n_used_by(seq_ids) + n_reserved);
    CHECK(scheduler_.n_cells_used() <= scheduler_.n_cells());
}

void Simulation::check_end() {
    uint64_t n_preemptions = 0;
    for (const Request & request : requests_) {
        CHECK(request.ended &&
              (request.cancelled || request.job->n_tokens() + !request.job->every_row == request.alone.size()));
        n_preemptions += static_cast<uint64_t>(request.job->n_preemptions);
    }
    CHECK(scheduler_.n_preemptions() == n_preemptions);
    CHECK(limits_.prefix_cache || scheduler_.n_reused() == 0);
    CHECK(limits_.prefix_cache || cache_.n_used() == 0);
    scheduler_.forget();
    CHECK(scheduler_.n_cells_used() == 0 && cache_.n_used() == 0 && !scheduler_.give_room());
    CHECK(scheduler_.next(1).empty());
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
    done = true;
}
