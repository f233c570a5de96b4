// A tier of the prefix cache below main memory, as the scheduler sees it.
#pragma once

#include "engine/scheduling/snapshots.hpp"

namespace pyg {

// Used by the engine's thread only. Reading takes long; as in KvCache, other threads may call Scheduler::add meanwhile.
class SnapshotStore {
  public:
    virtual ~SnapshotStore() = default;

    // Return how many tokens a prompt could continue from.
    virtual uint32_t longest(const Lookup & lookup) = 0;
    // Return the snapshot with these tokens; null if it cannot be read.
    virtual std::shared_ptr<const Snapshot> load(const Lookup & lookup) = 0;
    // The snapshot, which load returned, cannot be used: do not offer it again.
    virtual void forget(const Snapshot & snapshot) = 0;
    // Add a snapshot, some time later, or not at all.
    virtual void store(std::shared_ptr<const Snapshot> snapshot) = 0;
};

}  // namespace pyg
