// Snapshots as bytes, to be kept outside of the engine.
#pragma once

#include "engine/scheduling/snapshots.hpp"

namespace pyg {

// `fingerprint`: cells_fingerprint() of the context.
StateBytes encode(const Snapshot & snapshot, uint64_t fingerprint);

// PYG_ERR_INVALID_PARAMETER if the bytes are damaged, incomplete, or of a context with another fingerprint.
std::shared_ptr<Snapshot> decode(const void * data, size_t size, uint64_t fingerprint);

}  // namespace pyg
