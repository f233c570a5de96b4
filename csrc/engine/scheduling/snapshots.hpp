// Snapshots: copies of sequences that were evicted from the KV cache, from which later prompts continue.
//
// A snapshot has the cells of all its tokens, and the checkpoints of its sequence where the KV cache cannot be rewound.
// Bookkeeping only: see KvCache::take_snapshot and KvCache::load_snapshot.
#pragma once

#include "engine/scheduling/checkpoints.hpp"

namespace pyg {

struct Snapshot {
    uint64_t                cache_salt = 0;
    bool                    is_divided = false;  // saved from a KV cache of streams, and only loaded into one
    std::vector<int32_t>    tokens;
    StateBytes              state;        // as KvCache::take_snapshot returned it
    std::vector<Checkpoint> checkpoints;  // shortest first

    size_t n_bytes() const;
};

// The first `n` tokens of a sequence, and what decides which snapshots belong to it.
struct Lookup {
    uint64_t        cache_salt;
    bool            is_divided;
    bool            rewinds;  // a loaded sequence can be truncated to any length
    uint32_t        n_most;   // a longer one could not be loaded
    const int32_t * tokens;
    uint32_t        n;
};

// Number of tokens with which both begin.
uint32_t common_prefix(const int32_t * a, uint32_t n_a, const int32_t * b, uint32_t n_b);

// Return how many tokens a prompt can continue from when a saved sequence with these tokens is loaded. Its checkpoints
// have `checkpoint_at` tokens, shortest first.
uint32_t usable_tokens(const std::vector<int32_t> & tokens, const std::vector<uint32_t> & checkpoint_at,
                       const Lookup & lookup);

class Snapshots {
  public:
    // Part of a snapshot.
    struct Prefix {
        std::shared_ptr<const Snapshot> snapshot;
        uint32_t                        n         = 0;  // tokens from which a prompt can continue
        bool                            is_pinned = false;
    };

    size_t n() const { return entries_.size(); }
    size_t n_bytes() const { return n_bytes_; }  // without those that are pinned
    size_t n_pinned_bytes() const { return n_pinned_bytes_; }

    Prefix longest(const Lookup & lookup) const;

    // Return true if a snapshot has all these tokens, which counts as a use of it.
    bool refresh(const Lookup & lookup, uint64_t now);

    // May throw std::bad_alloc, with nothing added. A pinned snapshot stays until it is used.
    void add(std::shared_ptr<const Snapshot> snapshot, uint64_t now, bool is_pinned = false);

    // Pin the snapshot of exactly these tokens, if there is one. Return false if not.
    bool pin(const Lookup & lookup, uint64_t now);
    // These snapshots have been used, or are not needed any more.
    void unpin(const Snapshot & snapshot);
    // A task with the tokens of this lookup has started from the first `n`: unpin the snapshots that gave it no more.
    // Return true if there was one.
    bool unpin_started(const Lookup & lookup, uint32_t n);

    void used(const Snapshot & snapshot, uint64_t now);
    void remove(const Snapshot & snapshot);
    // Remove the snapshots that have only the first of these tokens and are not pinned.
    void remove_prefixes_of(const Lookup & lookup);
    void clear();

    // When the least recently used one that is not pinned was used; UINT64_MAX if there is none.
    uint64_t oldest() const;
    void     drop_oldest();

  private:
    struct Entry {
        std::shared_ptr<const Snapshot> snapshot;
        uint64_t                        last_used;
        bool                            is_pinned;
    };

    template <class Condition>
    void remove_if(Condition && condition);
    void set_pinned(Entry & entry, bool is_pinned);

    std::vector<Entry> entries_;
    size_t             n_bytes_        = 0;
    size_t             n_pinned_bytes_ = 0;
};

}  // namespace pyg
