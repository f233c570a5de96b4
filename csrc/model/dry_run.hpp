// A model is tried before it may be used: what its file makes upstream assert on becomes an error.
//
// Upstream checks types and shapes inside the operations, while it computes. A file at which that fails is better
// refused before anybody relies on it, and without a context that is lost. So a graph of each kind (several tokens, and
// one) is computed once with one thread, the caller's, in a small context of its own that is gone before the real one
// is made: nothing is left of it in caches, states, counters or thread pools. Our kernels leave products of weights
// out, which are nearly all of the work.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// PYG_ERR_MODEL_LOAD if the model cannot be computed in a context with these parameters. A model is tried once for each
// kind of context; not at all where devices compute everything.
void require_dry_run(const Model & model, const llama_context_params & params);

}  // namespace pyg
