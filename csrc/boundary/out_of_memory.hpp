// Errors for allocations that fail inside the engine although planned memory was available.
#pragma once

#include "boundary/guard.hpp"

namespace pyg {

// Error for engine messages that mean NO_MEMORY, with sizes if the messages contain them. `what` begins the message.
Failure no_memory(const std::string & what, const std::string & messages);

}  // namespace pyg
