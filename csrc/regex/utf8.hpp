// UTF-8 and code points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// The code points of valid UTF-8, which is what callers give; of anything else, PYG_ERR_INVALID_PARAMETER.
std::vector<uint32_t> code_points_of(const std::string & utf8);
void                  append_utf8(std::string & text, uint32_t code_point);

}  // namespace pyg
