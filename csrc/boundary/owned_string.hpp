// A copy that a caller owns, which ends with a NUL: pyg_string_free.
#pragma once

#include <string>

namespace pyg {

char * owned_copy(const std::string & text);

}  // namespace pyg
