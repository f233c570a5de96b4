// Sets of characters that regular expressions name.
#pragma once

#include "regex/char_set.hpp"
#include "regex/languages.hpp"

#include <string>

namespace pyg {

CharSet digit_chars();
CharSet word_chars();  // of ASCII, as \w
CharSet space_chars(RegexSyntax syntax);
CharSet line_ends(RegexSyntax syntax);  // what `.` leaves out

// The characters of a property as ECMAScript writes it: "Lu", "Letter", "General_Category=Lu", "Script=Greek",
// "sc=Grek", "Script_Extensions=Greek", "Alphabetic". False if it is unknown.
bool unicode_property(const std::string & name, CharSet & set);

// With all characters that differ in case only.
CharSet in_any_case(const CharSet & set);

}  // namespace pyg
