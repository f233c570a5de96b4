// Where the keys of attention lie, and whether the order of their cells is known.
#pragma once

#include "ggml.h"
#include "kernels/attention/cell_positions.h"

namespace pyg::kernels {

// What keys were read from: upstream first copies those of 32-bit floats, whose cells keep their numbers.
inline const ggml_tensor * stored(const ggml_tensor * keys) { return keys->op == GGML_OP_CPY ? keys->src[0] : keys; }

// The positions that the owner of a cache offers for it, or null.
inline const pyg_positions * positions_in(const ggml_tensor * cache) {
    const auto * const positions = static_cast<const pyg_positions *>(cache->extra);
    return positions && positions->magic == PYG_POSITIONS_MAGIC ? positions : nullptr;
}

// Whether attention takes these keys in an order that does not depend on where they lie: that of their positions, or
// the order of a batch, if they are no view of memory that was there before the graph.
inline bool knows_order(const ggml_tensor * keys) {
    const ggml_tensor * const base = stored(keys)->view_src;
    return !base || !base->buffer || positions_in(base);
}

}  // namespace pyg::kernels
