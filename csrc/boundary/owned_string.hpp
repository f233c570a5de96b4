// Copy a string for a caller who frees it with pyg_string_free.
#pragma once

#include <string>

namespace pyg {

char * owned_copy(const std::string & text);

}  // namespace pyg
