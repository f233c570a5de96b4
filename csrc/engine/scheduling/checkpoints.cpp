#include "engine/scheduling/checkpoints.hpp"

#include <algorithm>
#include <utility>

namespace pyg {

namespace {

// Fewest tokens that are worth a checkpoint, which costs a step of its own.
constexpr uint32_t MIN_TOKENS = 256;

// Tokens between two checkpoints of a long prompt.
constexpr uint32_t SPACING = 2048;

// Tokens after the last checkpoint of a prompt that is no chat, for the question at its end.
constexpr uint32_t QUESTION_TOKENS = 64;

// Return the beginnings of runs of control tokens, except at the start.
std::vector<uint32_t> message_ends(const std::vector<int32_t> &         prompt,
                                   const std::function<bool(int32_t)> & is_control) {
    std::vector<uint32_t> ends;
    bool                  before = true;
    for (size_t i = 0; i < prompt.size(); i++) {
        const bool now = is_control(prompt[i]);
        if (now && !before) {
            ends.push_back(static_cast<uint32_t>(i));
        }
        before = now;
    }
    return ends;
}

}  // namespace

size_t Checkpoints::n() const {
    size_t n = 0;
    for (const auto & checkpoints : of_) {
        n += checkpoints.size();
    }
    return n;
}

void Checkpoints::add(int32_t seq_id, uint32_t n, std::vector<uint8_t> state) {
    auto &     checkpoints = of_[static_cast<size_t>(seq_id)];
    const bool is_saved    = std::any_of(checkpoints.begin(), checkpoints.end(),
                                         [&](const Checkpoint & checkpoint) { return checkpoint.n == n; });
    if (is_saved || state.empty() || state.size() > max_bytes_) {
        return;
    }
    while (n_bytes_ + state.size() > max_bytes_) {
        drop_least_recently_used();
    }
    const size_t n_bytes = state.size();
    const auto   longer  = std::find_if(checkpoints.begin(), checkpoints.end(),
                                        [&](const Checkpoint & checkpoint) { return checkpoint.n > n; });
    checkpoints.insert(longer, Checkpoint{n, std::move(state), ++n_uses_});
    n_bytes_ += n_bytes;
}

const Checkpoint * Checkpoints::longest(int32_t seq_id, uint32_t n) const {
    const auto & checkpoints = of_[static_cast<size_t>(seq_id)];
    const auto   found       = std::find_if(checkpoints.rbegin(), checkpoints.rend(),
                                            [&](const Checkpoint & checkpoint) { return checkpoint.n <= n; });
    return found == checkpoints.rend() ? nullptr : &*found;
}

void Checkpoints::used(int32_t seq_id, uint32_t n) {
    for (Checkpoint & checkpoint : of_[static_cast<size_t>(seq_id)]) {
        if (checkpoint.n == n) {
            checkpoint.last_used = ++n_uses_;
        }
    }
}

void Checkpoints::truncate(int32_t seq_id, uint32_t n) {
    for (auto & checkpoints = of_[static_cast<size_t>(seq_id)]; !checkpoints.empty() && checkpoints.back().n > n;) {
        n_bytes_ -= checkpoints.back().state.size();
        checkpoints.pop_back();
    }
}

void Checkpoints::drop_least_recently_used() {
    std::vector<Checkpoint> * owner  = nullptr;
    size_t                    oldest = 0;
    for (auto & checkpoints : of_) {
        for (size_t i = 0; i < checkpoints.size(); i++) {
            if (!owner || checkpoints[i].last_used < (*owner)[oldest].last_used) {
                owner  = &checkpoints;
                oldest = i;
            }
        }
    }
    n_bytes_ -= (*owner)[oldest].state.size();
    owner->erase(owner->begin() + static_cast<std::ptrdiff_t>(oldest));
}

std::vector<uint32_t> checkpoint_lengths(const std::vector<int32_t> &         prompt,
                                         const std::function<bool(int32_t)> & is_control) {
    const auto n_prompt = static_cast<uint32_t>(prompt.size());
    if (n_prompt < MIN_TOKENS) {
        return {};
    }
    std::vector<uint32_t> lengths;
    for (uint32_t n = SPACING; n < n_prompt; n += SPACING) {
        lengths.push_back(n);
    }
    const std::vector<uint32_t> ends   = message_ends(prompt, is_control);
    const auto                  system = std::lower_bound(ends.begin(), ends.end(), MIN_TOKENS);
    if (system != ends.end()) {
        lengths.insert(lengths.end(), {*system, ends.back()});
    } else {
        lengths.push_back(n_prompt - QUESTION_TOKENS);
    }
    std::sort(lengths.begin(), lengths.end());
    // From the end, because the longest saves most.
    std::vector<uint32_t> kept;
    for (auto n = lengths.rbegin(); n != lengths.rend(); ++n) {
        if (*n >= MIN_TOKENS && (kept.empty() || kept.back() - *n >= MIN_TOKENS)) {
            kept.push_back(*n);
        }
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
}

}  // namespace pyg
