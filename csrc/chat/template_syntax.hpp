// Validation of a chat template's syntax.
#pragma once

#include <string>

namespace pyg {

// Throws std::exception, with the reason, if upstream cannot parse a template, or if it nests too deeply.
void require_valid_template(const std::string & source);

}  // namespace pyg
