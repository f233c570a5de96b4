// The KV cache tensor behind attention's keys, and the order of its cells.
#pragma once

#include "ggml.h"
#include "kernels/attention/cell_positions.h"

namespace pyg::kernels {

// The tensor that keys were read from: upstream first copies F32 keys, and cells keep their indices.
inline const ggml_tensor * stored(const ggml_tensor * keys) { return keys->op == GGML_OP_CPY ? keys->src[0] : keys; }

// The positions of a cache's cells, or null.
inline const pyg_positions * positions_in(const ggml_tensor * cache) {
    const auto * const positions = static_cast<const pyg_positions *>(cache->extra);
    return positions && positions->magic == PYG_POSITIONS_MAGIC ? positions : nullptr;
}

// True if attention's order of these keys does not depend on their place in the cache: they have positions, or they are
// computed in this graph, in the order of the batch.
inline bool has_cell_order(const ggml_tensor * keys) {
    const ggml_tensor * const base = stored(keys)->view_src;
    return !base || !base->buffer || positions_in(base);
}

}  // namespace pyg::kernels
