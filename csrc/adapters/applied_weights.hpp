// The weights that upstream applies adapters to.
#pragma once

#include "adapters/adapter_set.hpp"

namespace pyg {

// True if require_applied has accepted adapters of this content. PYG_ERR_UNSUPPORTED_ARCH: it has refused one of them.
bool are_applied(const Context & context, const AdapterSet & adapters);

// Refuse adapters that the context uses, if upstream's graphs multiply with a weight that one changes, and leave the
// change out: PYG_ERR_UNSUPPORTED_ARCH. Builds a graph when an adapter is first used; call it between forward passes.
// Other errors as plan_graphs().
void require_applied(Context & context, const AdapterSet & adapters);

}  // namespace pyg
