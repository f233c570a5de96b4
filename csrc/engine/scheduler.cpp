#include "engine/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace pyg {

namespace {

// A job is started beside others only with room for this many tokens more: one that had to give its room away soon
// after would have been computed for nothing.
constexpr uint32_t HEADROOM = 32;

// Waiting for a prompt that is being computed pays from this many common tokens on.
constexpr uint32_t WORTH_WAITING = 32;

// Of thousands that wait for the same prompt, so many are passed over to see who else could run.
constexpr uint32_t LOOK_AHEAD = 64;

uint32_t common_prefix(const std::vector<int32_t> & a, uint32_t n_a, const std::vector<int32_t> & b, uint32_t n_b) {
    const auto n = static_cast<std::ptrdiff_t>(std::min(n_a, n_b));
    return static_cast<uint32_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

bool arrived_before(const std::shared_ptr<Job> & a, const std::shared_ptr<Job> & b) { return a->arrival < b->arrival; }

// Into a row that is in order of arrival, and stays so.
template <class Row>
void insert(Row & row, const std::shared_ptr<Job> & job) {
    row.insert(std::upper_bound(row.begin(), row.end(), job, arrived_before), job);
}

template <class Row>
void remove(Row & row, const Job & job) {
    row.erase(std::remove_if(row.begin(), row.end(), [&](const auto & each) { return each.get() == &job; }), row.end());
}

}  // namespace

Scheduler::Scheduler(const Limits & limits, Cache & cache)
    : limits_(limits), cache_(cache), cells_(limits.n_cells, limits.n_seq),
      sequences_(static_cast<size_t>(limits.n_seq)) {}

void Scheduler::add(std::shared_ptr<Job> job) {
    job->arrival = n_arrived_++;
    waiting_.push_back(std::move(job));
}

Step Scheduler::next(uint32_t n_beside, uint32_t n_alone) {
    reserve_for_decoding();
    admit();
    if (Step step = rows_step(); !step.empty()) {
        return step;
    }
    Step step;
    for (const auto & job : running_) {
        if (!job->every_row && job->n_pending() == 1) {
            step.add(job, 1);
        }
    }
    uint32_t n_left = std::min(limits_.n_batch - step.n_tokens, step.empty() ? n_alone : n_beside);
    for (const auto & job : running_) {
        if (!job->every_row && job->n_pending() > 1 && n_left > 0) {
            const uint32_t n = std::min(n_left, job->n_pending());
            step.add(job, n);
            n_left -= n;
        }
    }
    return step;
}

// Jobs that want every row have every other step while there are others.
Step Scheduler::rows_step() {
    Step       step;
    const auto job = std::find_if(running_.begin(), running_.end(), [](const auto & each) { return each->every_row; });
    const bool others =
        std::any_of(running_.begin(), running_.end(), [](const auto & each) { return !each->every_row; });
    rows_had_last_step_ = job != running_.end() && !(others && rows_had_last_step_);
    if (rows_had_last_step_) {
        step.add(*job, std::min(limits_.n_rows, (*job)->n_pending()));
    }
    return step;
}

void Scheduler::computed(const Step & step) {
    for (const Slice & slice : step.slices) {
        slice.job->n_past = slice.first + slice.n;
    }
}

void Scheduler::interrupted(const Step & step) {
    for (const Slice & slice : step.slices) {
        const auto & job = slice.job;
        if (!job->runs()) {
            continue;
        }
        if (slice.first == 0 || cache_.can_keep(job->seq_id, slice.first)) {
            cache_.truncate(job->seq_id, slice.first);
        } else {
            preempt(job);
        }
    }
}

void Scheduler::end(Job & job, bool forget) {
    if (!job.runs()) {
        remove(waiting_, job);
        return;
    }
    const int32_t seq_id   = std::exchange(job.seq_id, -1);
    Sequence &    sequence = sequences_[seq_id];
    const auto    alive    = std::exchange(sequence.job, nullptr);
    remove(running_, job);
    if (forget || !limits_.prefix_cache || job.n_past == 0 || !cache_.can_keep(seq_id, job.n_past)) {
        drop(seq_id);
        return;
    }
    sequence.tokens = job.tokens;
    sequence.ended  = ++n_ended_;
    shorten(seq_id, job.n_past);  // what a step computed in which it ended does not count
}

void Scheduler::forget() {
    while (const auto seq_id = oldest_kept()) {
        drop(*seq_id);
    }
}

bool Scheduler::give_room() {
    if (oldest_kept()) {
        forget();
        return true;
    }
    if (running_.size() < 2) {
        return false;
    }
    preempt(running_.back());
    return true;
}

uint32_t Scheduler::n_cells_running() const {
    std::vector<int32_t> seq_ids;
    for (const auto & job : running_) {
        seq_ids.push_back(job->seq_id);
    }
    return cells_.n_held_by(seq_ids);
}

// The oldest first, so that it is never the one without room.
void Scheduler::reserve_for_decoding() {
    for (size_t i = 0; i < running_.size(); i++) {
        const auto     job       = running_[i];
        const uint32_t n_missing = job->n_tokens() - cells_.n_held(job->seq_id);
        while (job->runs() && !make_room(n_missing)) {
            preempt(running_.back());
        }
        if (job->runs()) {
            cells_.take(job->seq_id, n_missing);
        }
    }
}

void Scheduler::admit() {
    uint32_t n_passed_over = 0;
    for (auto each = waiting_.begin(); each != waiting_.end() && running_.size() < sequences_.size();) {
        const auto   job    = *each;
        const Prefix prefix = longest_prefix(*job);
        if (longer_prefix_soon(*job, prefix.n)) {
            if (++n_passed_over == LOOK_AHEAD) {
                return;
            }
            ++each;
        } else if (start(job, prefix)) {
            each = waiting_.erase(each);
        } else {
            return;  // nobody overtakes one who waits for room
        }
    }
}

// Gives a waiting job a sequence that begins with `prefix`, and cells for the rest of its tokens; false: no room.
bool Scheduler::start(const std::shared_ptr<Job> & job, const Prefix & prefix) {
    const uint32_t n_new  = job->n_tokens() - prefix.n;
    const uint32_t n_room = n_new + (running_.empty() ? 0 : HEADROOM);
    const bool     kept   = prefix.n > 0 && is_kept(prefix.seq_id);

    // Go on in the sequence that offers the prefix, or leave it whole for others and begin beside it.
    bool in_place = kept && (2 * prefix.n >= cells_.n_held(prefix.seq_id) || !cache_.can_share() ||
                             other_sequence(prefix.seq_id) < 0);
    if (in_place) {
        shorten(prefix.seq_id, prefix.n);
    }
    if (!make_room(n_room, prefix.seq_id)) {
        if (!kept || in_place) {
            return false;
        }
        in_place = true;
        shorten(prefix.seq_id, prefix.n);
        if (cells_.n_free() < n_room) {
            return false;
        }
    }

    const int32_t seq_id = in_place ? prefix.seq_id : other_sequence(prefix.seq_id);
    if (!in_place) {
        drop(seq_id);
        if (prefix.n > 0) {
            cells_.share(prefix.seq_id, seq_id, prefix.n);
            cache_.share(prefix.seq_id, seq_id, prefix.n);
        }
    }
    cells_.take(seq_id, n_new);
    sequences_[seq_id].job = job;
    sequences_[seq_id].tokens.clear();
    job->seq_id = seq_id;
    job->n_past = prefix.n;
    n_reused_ += prefix.n;
    if (job->n_preemptions == 0) {
        job->n_reused = prefix.n;
    }
    insert(running_, job);
    return true;
}

// What of a job's tokens is computed already, at best. The last one has to be computed again for its output.
Scheduler::Prefix Scheduler::longest_prefix(const Job & job) const {
    Prefix best;
    if (!limits_.prefix_cache || job.every_row) {
        return best;
    }
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        const Sequence & sequence = sequences_[seq_id];
        const auto &     tokens   = sequence.job ? sequence.job->tokens : sequence.tokens;
        const uint32_t   n_cached = sequence.job ? sequence.job->n_past : static_cast<uint32_t>(tokens.size());
        const uint32_t   n        = common_prefix(tokens, n_cached, job.tokens, job.n_tokens() - 1);
        const bool       usable   = !sequence.job || cache_.can_share();
        if (n > best.n && usable && cache_.can_keep(seq_id, n)) {
            best = {seq_id, n};
        }
    }
    return best;
}

// Whether a prompt that is being computed for an older job will offer clearly more than `n` tokens. Only an older
// one, so that the waiting has an end.
bool Scheduler::longer_prefix_soon(const Job & job, uint32_t n) const {
    if (!limits_.prefix_cache || job.every_row || !cache_.can_share()) {
        return false;
    }
    return std::any_of(running_.begin(), running_.end(), [&](const auto & other) {
        const uint32_t common = common_prefix(other->tokens, other->n_tokens(), job.tokens, job.n_tokens() - 1);
        return other->arrival < job.arrival && other->n_past < common && common >= n + WORTH_WAITING;
    });
}

// A sequence in which nobody runs: one that holds nothing, else the one used least recently; -1: none.
int32_t Scheduler::other_sequence(int32_t but) const {
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        if (!sequences_[seq_id].job && cells_.n_held(seq_id) == 0) {
            return seq_id;
        }
    }
    return oldest_kept(but).value_or(-1);
}

bool Scheduler::is_kept(int32_t seq_id) const { return !sequences_[seq_id].job && cells_.n_held(seq_id) > 0; }

std::optional<int32_t> Scheduler::oldest_kept(int32_t but) const {
    std::optional<int32_t> oldest;
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        if (seq_id != but && is_kept(seq_id) && (!oldest || sequences_[seq_id].ended < sequences_[*oldest].ended)) {
            oldest = seq_id;
        }
    }
    return oldest;
}

// Forgets kept sequences until `n` cells are free; false when that is not enough.
bool Scheduler::make_room(uint32_t n, int32_t but) {
    while (cells_.n_free() < n) {
        const auto seq_id = oldest_kept(but);
        if (!seq_id) {
            return false;
        }
        drop(*seq_id);
    }
    return true;
}

void Scheduler::preempt(std::shared_ptr<Job> job) {
    const int32_t seq_id   = std::exchange(job->seq_id, -1);
    sequences_[seq_id].job = nullptr;
    job->n_past            = 0;
    job->n_preemptions++;
    n_preemptions_++;
    remove(running_, *job);
    insert(waiting_, job);
    drop(seq_id);
}

void Scheduler::shorten(int32_t seq_id, uint32_t n) {
    cells_.truncate(seq_id, n);
    sequences_[seq_id].tokens.resize(n);
    cache_.truncate(seq_id, n);
}

void Scheduler::drop(int32_t seq_id) { shorten(seq_id, 0); }

}  // namespace pyg
