#include "engine/scheduling/snapshots.hpp"

#include <algorithm>
#include <utility>

namespace pyg {

namespace {

// A loaded snapshot is copied whole, so a prompt has to continue from at least one in so many of its tokens.
constexpr uint32_t MAX_LOADED_PER_TOKEN = 16;

bool belongs_to(const Snapshot & snapshot, const Lookup & lookup) {
    return snapshot.cache_salt == lookup.cache_salt && snapshot.is_divided == lookup.is_divided;
}

uint32_t n_tokens_of(const Snapshot & snapshot) { return static_cast<uint32_t>(snapshot.tokens.size()); }

uint32_t common_prefix(const Snapshot & snapshot, const Lookup & lookup) {
    return pyg::common_prefix(snapshot.tokens.data(), n_tokens_of(snapshot), lookup.tokens, lookup.n);
}

std::vector<uint32_t> lengths_of(const std::vector<Checkpoint> & checkpoints) {
    std::vector<uint32_t> lengths;
    for (const Checkpoint & checkpoint : checkpoints) {
        lengths.push_back(checkpoint.n);
    }
    return lengths;
}

}  // namespace

uint32_t common_prefix(const int32_t * a, uint32_t n_a, const int32_t * b, uint32_t n_b) {
    return static_cast<uint32_t>(std::mismatch(a, a + std::min(n_a, n_b), b).first - a);
}

uint32_t usable_tokens(const std::vector<int32_t> & tokens, const std::vector<uint32_t> & checkpoint_at,
                       const Lookup & lookup) {
    const auto n_tokens = static_cast<uint32_t>(tokens.size());
    if (n_tokens > lookup.n_most) {
        return 0;
    }
    uint32_t n = common_prefix(tokens.data(), n_tokens, lookup.tokens, lookup.n);
    if (!lookup.rewinds && n < n_tokens) {
        const auto longer = std::upper_bound(checkpoint_at.begin(), checkpoint_at.end(), n);
        n                 = longer == checkpoint_at.begin() ? 0 : *(longer - 1);
    }
    return n_tokens / MAX_LOADED_PER_TOKEN <= n ? n : 0;
}

size_t Snapshot::n_bytes() const {
    size_t n = state.size() + tokens.size() * sizeof(tokens[0]);
    for (const Checkpoint & checkpoint : checkpoints) {
        n += checkpoint.state->size();
    }
    return n;
}

Snapshots::Prefix Snapshots::longest(const Lookup & lookup) const {
    Prefix best;
    for (const Entry & entry : entries_) {
        const Snapshot & snapshot = *entry.snapshot;
        if (!belongs_to(snapshot, lookup) || common_prefix(snapshot, lookup) < best.n) {
            continue;
        }
        const uint32_t n = usable_tokens(snapshot.tokens, lengths_of(snapshot.checkpoints), lookup);
        if (n > best.n || (n == best.n && n > 0 && entry.is_pinned && !best.is_pinned)) {
            best = {entry.snapshot, n, entry.is_pinned};
        }
    }
    return best;
}

bool Snapshots::refresh(const Lookup & lookup, uint64_t now) {
    for (Entry & entry : entries_) {
        const Snapshot & snapshot = *entry.snapshot;
        const bool       has_all  = belongs_to(snapshot, lookup) && common_prefix(snapshot, lookup) == lookup.n;
        if (has_all && (lookup.rewinds || n_tokens_of(snapshot) == lookup.n)) {
            entry.last_used = now;
            return true;
        }
    }
    return false;
}

void Snapshots::add(std::shared_ptr<const Snapshot> snapshot, uint64_t now, bool is_pinned) {
    const size_t n_bytes = snapshot->n_bytes();
    entries_.push_back({std::move(snapshot), now, is_pinned});
    (is_pinned ? n_pinned_bytes_ : n_bytes_) += n_bytes;
}

void Snapshots::set_pinned(Entry & entry, bool is_pinned) {
    if (std::exchange(entry.is_pinned, is_pinned) != is_pinned) {
        const size_t n_bytes = entry.snapshot->n_bytes();
        (is_pinned ? n_bytes_ : n_pinned_bytes_) -= n_bytes;
        (is_pinned ? n_pinned_bytes_ : n_bytes_) += n_bytes;
    }
}

bool Snapshots::pin(const Lookup & lookup, uint64_t now) {
    for (Entry & entry : entries_) {
        const Snapshot & snapshot = *entry.snapshot;
        if (belongs_to(snapshot, lookup) && n_tokens_of(snapshot) == lookup.n &&
            common_prefix(snapshot, lookup) == lookup.n) {
            entry.last_used = now;
            set_pinned(entry, true);
            return true;
        }
    }
    return false;
}

void Snapshots::unpin(const Snapshot & snapshot) {
    for (Entry & entry : entries_) {
        if (entry.snapshot.get() == &snapshot) {
            set_pinned(entry, false);
        }
    }
}

// A task never starts from its last token.
bool Snapshots::unpin_started(const Lookup & lookup, uint32_t n) {
    bool any = false;
    for (Entry & entry : entries_) {
        if (entry.is_pinned && belongs_to(*entry.snapshot, lookup)) {
            const uint32_t n_common = common_prefix(*entry.snapshot, lookup);
            if (n_common > 0 && n_common <= n && n_common + 1 >= n_tokens_of(*entry.snapshot)) {
                set_pinned(entry, false);
                any = true;
            }
        }
    }
    return any;
}

void Snapshots::used(const Snapshot & snapshot, uint64_t now) {
    for (Entry & entry : entries_) {
        if (entry.snapshot.get() == &snapshot) {
            entry.last_used = now;
            set_pinned(entry, false);
        }
    }
}

template <class Condition>
void Snapshots::remove_if(Condition && condition) {
    const auto kept =
        std::stable_partition(entries_.begin(), entries_.end(), [&](const Entry & entry) { return !condition(entry); });
    for (auto entry = kept; entry != entries_.end(); ++entry) {
        (entry->is_pinned ? n_pinned_bytes_ : n_bytes_) -= entry->snapshot->n_bytes();
    }
    entries_.erase(kept, entries_.end());
}

void Snapshots::remove(const Snapshot & snapshot) {
    remove_if([&](const Entry & entry) { return entry.snapshot.get() == &snapshot; });
}

void Snapshots::remove_prefixes_of(const Lookup & lookup) {
    remove_if([&](const Entry & entry) {
        const Snapshot & each = *entry.snapshot;
        return !entry.is_pinned && belongs_to(each, lookup) && n_tokens_of(each) < lookup.n &&
               common_prefix(each, lookup) == n_tokens_of(each);
    });
}

void Snapshots::clear() {
    entries_.clear();
    n_bytes_ = n_pinned_bytes_ = 0;
}

uint64_t Snapshots::oldest() const {
    uint64_t oldest = UINT64_MAX;
    for (const Entry & entry : entries_) {
        oldest = entry.is_pinned ? oldest : std::min(oldest, entry.last_used);
    }
    return oldest;
}

void Snapshots::drop_oldest() {
    const uint64_t when = oldest();
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry & entry) { return !entry.is_pinned && entry.last_used == when; });
    n_bytes_ -= found->snapshot->n_bytes();
    entries_.erase(found);
}

}  // namespace pyg
