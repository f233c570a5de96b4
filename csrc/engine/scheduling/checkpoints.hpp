// Checkpoints: states of sequences whose memory cannot be rewound, saved while their prompts are prefilled.
//
// Recurrent layers have one state for all tokens, and sliding windows drop older cells, so a cached sequence could only
// be continued where it ended. A checkpoint holds what such a memory had after the first n tokens of its sequence; the
// cells that can be rewound stay where they are. Bookkeeping only: see KvCache::save and KvCache::restore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace pyg {

struct Checkpoint {
    uint32_t             n;          // tokens of the sequence
    std::vector<uint8_t> state;      // as KvCache::save returned it
    uint64_t             last_used;  // when it was saved or restored, as a count of both
};

// The checkpoints of all sequences, in a limited number of bytes: the least recently used are evicted for new ones.
class Checkpoints {
  public:
    Checkpoints(int32_t n_seq, size_t max_bytes) : max_bytes_(max_bytes), of_(static_cast<size_t>(n_seq)) {}

    bool   enabled() const { return max_bytes_ > 0; }
    size_t n() const;
    size_t n_bytes() const { return n_bytes_; }

    // A state that is too large is dropped. May throw std::bad_alloc, with nothing added.
    void add(int32_t seq_id, uint32_t n, std::vector<uint8_t> state);

    // Return the longest checkpoint of a sequence with at most `n` tokens, or null. Valid until the next change.
    const Checkpoint * longest(int32_t seq_id, uint32_t n) const;

    void used(int32_t seq_id, uint32_t n);      // that one was restored
    void truncate(int32_t seq_id, uint32_t n);  // drops those with more tokens

  private:
    void drop_least_recently_used();

    const size_t                         max_bytes_;
    std::vector<std::vector<Checkpoint>> of_;  // by sequence, shortest first
    size_t                               n_bytes_ = 0;
    uint64_t                             n_uses_  = 0;
};

// Return the lengths of a prompt at which checkpoints are worth their bytes, shortest first: where a later prompt is
// likely to differ. In a chat, these are the ends of the system prompt and of the last message, before the tokens that
// begin the answer: its reasoning is often left out of the next prompt. In other texts it is near the end. Long prompts
// have some between. `is_control` tells the tokens that templates put between messages.
std::vector<uint32_t> checkpoint_lengths(const std::vector<int32_t> &         prompt,
                                         const std::function<bool(int32_t)> & is_control);

}  // namespace pyg
