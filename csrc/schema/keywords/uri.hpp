// URI references, as `$id` and `$ref` have them.
#pragma once

#include <string>

namespace pyg {

// Resolve a reference against a base, as RFC 3986 (5.2) says. Both may be relative.
std::string resolve_uri(const std::string & base, const std::string & reference);

// The part before '#', and the part after it with percent-encoding undone.
std::string without_fragment(const std::string & uri);
std::string fragment_of(const std::string & uri);

}  // namespace pyg
