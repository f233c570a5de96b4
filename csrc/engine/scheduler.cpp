#include "engine/scheduler.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace pyg {

namespace {

// A task starts beside others only if there is room for this many more tokens: if it lost its room soon after, it would
// have been computed for nothing.
constexpr uint32_t HEADROOM = 32;

// Waiting for a prompt that is being computed pays off from this many common tokens on.
constexpr uint32_t WORTH_WAITING = 32;

// If thousands wait for the same prompt, this many are skipped to find others that can run.
constexpr uint32_t LOOK_AHEAD = 64;

uint32_t common_prefix(const std::vector<int32_t> & a, uint32_t n_a, const std::vector<int32_t> & b, uint32_t n_b) {
    const auto n = static_cast<std::ptrdiff_t>(std::min(n_a, n_b));
    return static_cast<uint32_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

bool arrived_before(const std::shared_ptr<Task> & a, const std::shared_ptr<Task> & b) {
    return a->arrival < b->arrival;
}

// Inserts into a queue sorted by arrival.
template <class Row>
void insert(Row & row, const std::shared_ptr<Task> & task) {
    row.insert(std::upper_bound(row.begin(), row.end(), task, arrived_before), task);
}

template <class Row>
bool remove(Row & row, const Task & task) {
    const auto place = std::find_if(row.begin(), row.end(), [&](const auto & each) { return each.get() == &task; });
    if (place == row.end()) {
        return false;
    }
    row.erase(place);
    return true;
}

// False if there is no memory for that.
bool copied(const std::vector<int32_t> & from, std::vector<int32_t> & to) {
    try {
        to = from;
        return true;
    } catch (const std::bad_alloc &) {
        return false;
    }
}

}  // namespace

Scheduler::Scheduler(const Limits & limits, Cache & cache)
    : limits_(limits), cache_(cache), cells_(limits.n_cells, limits.n_seq),
      sequences_(static_cast<size_t>(limits.n_seq)) {
    running_.reserve(sequences_.size());
}

void Scheduler::add(std::shared_ptr<Task> task) {
    task->arrival = n_arrived_++;
    waiting_.push_back(std::move(task));
}

Step Scheduler::next(const Pieces & pieces) {
    reserve_for_decoding();
    admit();
    if (Step step = rows_step(); !step.empty()) {
        return step;
    }
    Step step;
    for (const auto & task : running_) {
        if (!task->every_row && task->n_pending() == 1) {
            step.add(task, 1);
        }
    }
    uint32_t n_left = filling(step.n_tokens, std::min(limits_.n_batch - step.n_tokens, piece(pieces)));
    for (const auto & task : running_) {
        if (!task->every_row && task->n_pending() > 1 && n_left > 0) {
            const uint32_t n = std::min(n_left, task->n_pending());
            step.add(task, n);
            n_left -= n;
        }
    }
    return step;
}

uint32_t Scheduler::piece(const Pieces & pieces) const {
    uint32_t most = pieces.unwatched;
    for (const auto & task : running_) {
        if (task->every_row || task->unwatched) {
            continue;
        }
        if (task->n_pending() == 1) {
            return pieces.beside;
        }
        most = pieces.alone;
    }
    return most;
}

// At most `n` tokens, and at least half as many, that fill whole micro-batches with the others of the step: what is
// left over would be another pass over all weights, for a few tokens.
uint32_t Scheduler::filling(uint32_t n_others, uint32_t n) const {
    const uint32_t whole = (n_others + n) / limits_.n_ubatch * limits_.n_ubatch;
    return whole >= n_others + (n + 1) / 2 ? whole - n_others : n;
}

// Tasks that want every row get every other step while there are others.
Step Scheduler::rows_step() {
    Step       step;
    const auto task = std::find_if(running_.begin(), running_.end(), [](const auto & each) { return each->every_row; });
    const bool others =
        std::any_of(running_.begin(), running_.end(), [](const auto & each) { return !each->every_row; });
    rows_had_last_step_ = task != running_.end() && !(others && rows_had_last_step_);
    if (rows_had_last_step_) {
        step.add(*task, std::min(limits_.n_rows, (*task)->n_pending()));
    }
    return step;
}

void Scheduler::computed(const Step & step) {
    for (const Slice & slice : step.slices) {
        slice.task->n_past = slice.first + slice.n;
    }
}

void Scheduler::interrupted(const Step & step) {
    for (const Slice & slice : step.slices) {
        const auto & task = slice.task;
        if (!task->runs()) {
            continue;
        }
        if (slice.first == 0 || cache_.can_keep(task->seq_id, slice.first)) {
            cache_.truncate(task->seq_id, slice.first);
        } else {
            preempt(task);
        }
    }
}

bool Scheduler::end(Task & task, bool forget) {
    if (!task.runs()) {
        return remove(waiting_, task);
    }
    const int32_t seq_id   = std::exchange(task.seq_id, -1);
    Sequence &    sequence = sequences_[seq_id];
    const auto    alive    = std::exchange(sequence.task, nullptr);
    remove(running_, task);
    const bool keeps = !forget && limits_.prefix_cache && task.n_past > 0 && cache_.can_keep(seq_id, task.n_past) &&
                       copied(task.tokens, sequence.tokens);
    sequence.ended   = ++n_ended_;
    shorten(seq_id, keeps ? task.n_past : 0);  // drop what was computed in the step in which it ended
    return true;
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
    for (const auto & task : running_) {
        seq_ids.push_back(task->seq_id);
    }
    return cells_.n_held_by(seq_ids);
}

// The oldest first, so that it always gets room.
void Scheduler::reserve_for_decoding() {
    for (size_t i = 0; i < running_.size(); i++) {
        const auto     task      = running_[i];
        const uint32_t n_missing = task->n_tokens() - cells_.n_held(task->seq_id);
        while (task->runs() && !make_room(n_missing)) {
            preempt(running_.back());
        }
        if (task->runs()) {
            cells_.take(task->seq_id, n_missing);
        }
    }
}

void Scheduler::admit() {
    uint32_t n_passed_over = 0;
    for (auto each = waiting_.begin(); each != waiting_.end() && running_.size() < sequences_.size();) {
        const auto   task   = *each;
        const Prefix prefix = longest_prefix(*task);
        if (longer_prefix_soon(*task, prefix.n)) {
            if (++n_passed_over == LOOK_AHEAD) {
                return;
            }
            ++each;
        } else if (start(task, prefix)) {
            each = waiting_.erase(each);
        } else {
            return;  // no task overtakes one that waits for room
        }
    }
}

// Gives a waiting task a sequence that begins with `prefix` and cells for its other tokens; false: no room.
bool Scheduler::start(const std::shared_ptr<Task> & task, const Prefix & prefix) {
    const uint32_t n_new  = task->n_tokens() - prefix.n;
    const uint32_t n_room = n_new + (running_.empty() ? 0 : HEADROOM);
    const bool     kept   = prefix.n > 0 && is_kept(prefix.seq_id);

    // Continue in the sequence that offers the prefix, or leave it whole for others and share its cells.
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
    sequences_[seq_id].task = task;
    sequences_[seq_id].tokens.clear();
    task->seq_id = seq_id;
    task->n_past = prefix.n;
    n_reused_ += prefix.n;
    if (task->n_preemptions == 0) {
        task->n_reused = prefix.n;
    }
    insert(running_, task);
    return true;
}

// The longest prefix of a task's tokens already computed. The last token is always computed again for its output.
Scheduler::Prefix Scheduler::longest_prefix(const Task & task) const {
    Prefix best;
    if (!limits_.prefix_cache || task.every_row) {
        return best;
    }
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        const Sequence & sequence = sequences_[seq_id];
        const auto &     tokens   = sequence.task ? sequence.task->tokens : sequence.tokens;
        const uint32_t   n_cached = sequence.task ? sequence.task->n_past : static_cast<uint32_t>(tokens.size());
        const uint32_t   n        = common_prefix(tokens, n_cached, task.tokens, task.n_tokens() - 1);
        const bool       usable   = !sequence.task || cache_.can_share();
        if (n > best.n && usable && cache_.can_keep(seq_id, n)) {
            best = {seq_id, n};
        }
    }
    return best;
}

// Whether a prompt being computed for an older task will offer clearly more than `n` tokens. Only older tasks count, so
// that waiting ends.
bool Scheduler::longer_prefix_soon(const Task & task, uint32_t n) const {
    if (!limits_.prefix_cache || task.every_row || !cache_.can_share()) {
        return false;
    }
    return std::any_of(running_.begin(), running_.end(), [&](const auto & other) {
        const uint32_t common = common_prefix(other->tokens, other->n_tokens(), task.tokens, task.n_tokens() - 1);
        return other->arrival < task.arrival && other->n_past < common && common >= n + WORTH_WAITING;
    });
}

// A sequence without a running task: an empty one, else the least recently used; -1: none.
int32_t Scheduler::other_sequence(int32_t but) const {
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        if (!sequences_[seq_id].task && cells_.n_held(seq_id) == 0) {
            return seq_id;
        }
    }
    return oldest_kept(but).value_or(-1);
}

bool Scheduler::is_kept(int32_t seq_id) const { return !sequences_[seq_id].task && cells_.n_held(seq_id) > 0; }

std::optional<int32_t> Scheduler::oldest_kept(int32_t but) const {
    std::optional<int32_t> oldest;
    for (int32_t seq_id = 0; seq_id < limits_.n_seq; seq_id++) {
        if (seq_id != but && is_kept(seq_id) && (!oldest || sequences_[seq_id].ended < sequences_[*oldest].ended)) {
            oldest = seq_id;
        }
    }
    return oldest;
}

// Forgets kept sequences until `n` cells are free; false if that is not enough.
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

void Scheduler::preempt(std::shared_ptr<Task> task) {
    insert(waiting_, task);
    const int32_t seq_id    = std::exchange(task->seq_id, -1);
    sequences_[seq_id].task = nullptr;
    task->n_past            = 0;
    task->n_preemptions++;
    n_preemptions_++;
    remove(running_, *task);
    drop(seq_id);
}

void Scheduler::shorten(int32_t seq_id, uint32_t n) {
    cells_.truncate(seq_id, n);
    sequences_[seq_id].tokens.resize(n);
    cache_.truncate(seq_id, n);
}

void Scheduler::drop(int32_t seq_id) { shorten(seq_id, 0); }

}  // namespace pyg
