// Checksums, and fingerprints of what saved states depend on.
#pragma once

#include "boundary/handles.hpp"

#include <optional>

namespace pyg {

constexpr uint64_t CHECKSUM_OF_NOTHING = 0xcbf29ce484222325ULL;

// FNV-1a over words of eight bytes: detects damage, not malice.
uint64_t checksum(const void * data, size_t size, uint64_t hash = CHECKSUM_OF_NOTHING);

// Metadata and sizes: enough to tell models apart, without reading weights.
uint64_t metadata_fingerprint(const Model & model);

// Everything that the bits of a context's KV cells depend on: the model's metadata and samples of all its tensors,
// types of the KV cache, positions, devices, instruction sets and kernels, and the build of the engine. Empty if the
// model's file cannot be read any more.
std::optional<uint64_t> cells_fingerprint(const Context & context);

}  // namespace pyg
