// Dry run of a model before use, so that a file that makes upstream fail an assert is reported as an error.
//
// Upstream checks types and shapes inside its operations, while it computes. A broken file should be refused when it is
// loaded, without poisoning a context. So one graph of each kind (several tokens, and one) is computed on the calling
// thread in a small temporary context, which leaves nothing behind in caches, states, counters or thread pools. Our
// kernels skip products of weights, which are nearly all of the work.
#pragma once

#include "boundary/handles.hpp"

namespace pyg {

// PYG_ERR_MODEL_LOAD if the model cannot be computed in a context with these parameters. Runs once for each kind of
// context; not at all where devices compute everything.
void require_dry_run(const Model & model, const llama_context_params & params);

}  // namespace pyg
