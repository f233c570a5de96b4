// Allocations that fail inside the engine although the plan said that there is room.
#pragma once

#include "boundary/guard.hpp"

namespace pyg {

// The error for words that mean NO_MEMORY, with the numbers where the words say which memory it was. `what` needs it,
// and begins the message.
Failure no_memory(const std::string & what, const std::string & messages);

}  // namespace pyg
