// Languages of JSON numbers, with exact decimal arithmetic on numbers of any length.
#pragma once

#include "regex/languages.hpp"

#include <string>

namespace pyg {

// Every spelling that JSON allows: 1, -0.5, 1.0e3. Arguments named `number` are spelled so too.
Language json_numbers(Languages & languages);

// -?(0|[1-9][0-9]*), of values that are integers; with_fraction: also spelled 2.0 or 2.00.
Language json_integers(Languages & languages, bool with_fraction = false);

// Numbers of which the value is at least (above: more than) or at most (below: less than) `number`, spelled without an
// exponent, with any number of digits.
Language numbers_from(Languages & languages, const std::string & number, bool above);
Language numbers_to(Languages & languages, const std::string & number, bool below);

// Multiples of a positive number, which may have a fraction; spelled without an exponent. PYG_ERR_GRAMMAR if it has too
// many digits to be followed.
Language multiples_of(Languages & languages, const std::string & number);

// Spellings of one value, without an exponent: 2, 2.0, 2.00 (-0 equals 0).
Language numbers_equal_to(Languages & languages, const std::string & number);

// -1, 0, 1: compares two values; exact.
int  compare_numbers(const std::string & a, const std::string & b);
bool is_integer(const std::string & number);    // of value: 2.0 and 1e3 are
bool is_json_number(const std::string & text);  // of spelling

}  // namespace pyg
