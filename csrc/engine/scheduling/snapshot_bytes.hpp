// Snapshots as bytes, to be kept outside of the engine.
#pragma once

#include "engine/scheduling/snapshots.hpp"

#include <functional>

namespace pyg {

// `fingerprint`: cells_fingerprint() of the context.
StateBytes encode(const Snapshot & snapshot, uint64_t fingerprint);

// What a saved snapshot is good for.
struct SnapshotHead {
    uint64_t              cache_salt;
    bool                  is_divided;
    std::vector<int32_t>  tokens;
    std::vector<uint32_t> checkpoint_at;  // their lengths, shortest first
};

// Read the head of `size` bytes, without the checksum. `read` returns the first n of them. Errors as of decode.
SnapshotHead read_head(const std::function<StateBytes(uint64_t n)> & read, uint64_t size, uint64_t fingerprint);

// PYG_ERR_INVALID_PARAMETER if the bytes are damaged, incomplete, or of a context with another fingerprint.
std::shared_ptr<Snapshot> decode(const void * data, size_t size, uint64_t fingerprint);

}  // namespace pyg
