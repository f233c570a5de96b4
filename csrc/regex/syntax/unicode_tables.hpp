// Unicode's properties, encoded. Numbers are written in base 32, the lowest digits first, with the characters of
// ENCODED_DIGITS; 32 is added to all digits of a number but its last.
#pragma once

namespace pyg {

constexpr char ENCODED_DIGITS[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-";

struct UnicodeProperty {
    const char * names;   // separated by ";"
    const char * ranges;  // gap before each range and its length less one, by turns
};

// A null name is last.
extern const UnicodeProperty UNICODE_CATEGORIES[];
extern const UnicodeProperty UNICODE_BINARY_PROPERTIES[];
extern const UnicodeProperty UNICODE_SCRIPTS[];
extern const UnicodeProperty UNICODE_SCRIPT_EXTENSIONS[];  // of the scripts for which they differ from those

// Runs of characters with the same difference to their folded ones: gap, length less one, step, and the difference as
// 2 * d, or -2 * d - 1 if it is negative.
extern const char UNICODE_CASE[];

}  // namespace pyg
