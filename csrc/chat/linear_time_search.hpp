// Linear-time text search. The standard library's is quadratic: a template that searches for a long text in a long text
// could take hours, without a call or an allocation at which it could be stopped.
#pragma once

#include <cstddef>
#include <string>

namespace pyg {

// std::string's find and rfind in linear time.
size_t find_text(const std::string & text, const char * part, size_t position, size_t part_size) noexcept;
size_t rfind_text(const std::string & text, const char * part, size_t position, size_t part_size) noexcept;

}  // namespace pyg
