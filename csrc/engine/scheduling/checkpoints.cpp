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

bool Checkpoints::contains(int32_t seq_id, uint32_t n) const {
    return std::any_of(of(seq_id).begin(), of(seq_id).end(),
                       [&](const Checkpoint & checkpoint) { return checkpoint.n == n; });
}

void Checkpoints::add(int32_t seq_id, Checkpoint checkpoint) {
    auto &       checkpoints = of_[static_cast<size_t>(seq_id)];
    const size_t n_bytes     = checkpoint.state->size();
    const auto   longer      = std::find_if(checkpoints.begin(), checkpoints.end(),
                                            [&](const Checkpoint & each) { return each.n > checkpoint.n; });
    checkpoints.insert(longer, std::move(checkpoint));
    n_bytes_ += n_bytes;
}

void Checkpoints::used(int32_t seq_id, uint32_t n, uint64_t now) {
    for (Checkpoint & checkpoint : of_[static_cast<size_t>(seq_id)]) {
        if (checkpoint.n == n) {
            checkpoint.last_used = now;
        }
    }
}

void Checkpoints::truncate(int32_t seq_id, uint32_t n) {
    for (auto & checkpoints = of_[static_cast<size_t>(seq_id)]; !checkpoints.empty() && checkpoints.back().n > n;) {
        n_bytes_ -= checkpoints.back().state->size();
        checkpoints.pop_back();
    }
}

uint64_t Checkpoints::oldest() const {
    uint64_t oldest = UINT64_MAX;
    for (const auto & checkpoints : of_) {
        for (const Checkpoint & checkpoint : checkpoints) {
            oldest = std::min(oldest, checkpoint.last_used);
        }
    }
    return oldest;
}

void Checkpoints::drop_oldest() {
    const uint64_t when = oldest();
    for (auto & checkpoints : of_) {
        const auto found = std::find_if(checkpoints.begin(), checkpoints.end(),
                                        [&](const Checkpoint & checkpoint) { return checkpoint.last_used == when; });
        if (found != checkpoints.end()) {
            n_bytes_ -= found->state->size();
            checkpoints.erase(found);
            return;
        }
    }
}

const Checkpoint * longest_checkpoint(const std::vector<Checkpoint> & checkpoints, uint32_t n) {
    const auto found = std::find_if(checkpoints.rbegin(), checkpoints.rend(),
                                    [&](const Checkpoint & checkpoint) { return checkpoint.n <= n; });
    return found == checkpoints.rend() ? nullptr : &*found;
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
