// The standard library looks for a text in another by trying every place: where a template looks for millions of
// letters among as many, that takes hours, without a call or an allocation at which it could be stopped.
#pragma once

#include <cstddef>
#include <string>

namespace pyg {

// As std::string's find and rfind, in a time that grows with the sum of the lengths.
size_t find_text(const std::string & text, const char * part, size_t position, size_t part_size) noexcept;
size_t rfind_text(const std::string & text, const char * part, size_t position, size_t part_size) noexcept;

}  // namespace pyg
