// Checkpoints: states of sequences whose memory cannot be rewound, saved while their prompts are prefilled.
//
// Recurrent layers have one state for all tokens, and sliding windows drop older cells, so a cached sequence could only
// be continued where it ended. A checkpoint holds what such a memory had after the first n tokens of its sequence; the
// cells that can be rewound stay where they are. Bookkeeping only: see KvCache::save and KvCache::restore.
#pragma once

#include "engine/scheduling/state_bytes.hpp"

#include <functional>
#include <vector>

namespace pyg {

struct Checkpoint {
    uint32_t                          n;          // tokens of the sequence
    std::shared_ptr<const StateBytes> state;      // as KvCache::save returned it; snapshots share it
    uint64_t                          last_used;  // when it was saved or restored, as a count of uses
};

// The checkpoints of all sequences.
class Checkpoints {
  public:
    explicit Checkpoints(int32_t n_seq) : of_(static_cast<size_t>(n_seq)) {}

    size_t n() const;
    size_t n_bytes() const { return n_bytes_; }

    // Those of a sequence, shortest first.
    const std::vector<Checkpoint> & of(int32_t seq_id) const { return of_[static_cast<size_t>(seq_id)]; }

    bool contains(int32_t seq_id, uint32_t n) const;

    // There must be none of the same length. May throw std::bad_alloc, with nothing added.
    void add(int32_t seq_id, Checkpoint checkpoint);

    void used(int32_t seq_id, uint32_t n, uint64_t now);  // that one was restored
    void truncate(int32_t seq_id, uint32_t n);            // drops those with more tokens

    // When the least recently used one was used; UINT64_MAX if there is none.
    uint64_t oldest() const;
    void     drop_oldest();

  private:
    std::vector<std::vector<Checkpoint>> of_;  // by sequence, shortest first
    size_t                               n_bytes_ = 0;
};

// Return the longest checkpoint with at most `n` tokens, or null. Valid until the next change.
const Checkpoint * longest_checkpoint(const std::vector<Checkpoint> & checkpoints, uint32_t n);

// Return the lengths of a prompt at which checkpoints are worth their bytes, shortest first: where a later prompt is
// likely to differ. In a chat, these are the ends of the system prompt and of the last message, before the tokens that
// begin the answer: its reasoning is often left out of the next prompt. In other texts it is near the end. Long prompts
// have some between. `is_control` tells the tokens that templates put between messages.
std::vector<uint32_t> checkpoint_lengths(const std::vector<int32_t> &         prompt,
                                         const std::function<bool(int32_t)> & is_control);

}  // namespace pyg
