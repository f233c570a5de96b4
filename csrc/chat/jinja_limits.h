// Included before upstream's jinja/runtime.cpp and jinja/value.cpp (see vendor/CMakeLists.txt). Templates come with
// models, and upstream's interpreter lets them loop and recurse forever, divide by zero and leak memory.
#pragma once

#include "jinja/runtime.h"
#include "json.h"
#include "unicode.h"

#include <algorithm>
#include <optional>

// Throws std::runtime_error when the template on this thread exceeds its limits on time, recursion or memory.
void pyg_jinja_step();

// Record a list or an object that the template modifies: it may become cyclic and leak.
void pyg_jinja_changes(const jinja::value & value);

// Remove duplicates from the characters to strip: upstream compares each with each character of the text.
std::string pyg_jinja_different(const std::string & characters);

namespace jinja {

// Converting a value to text checks its type; a list may contain itself, or another list many times.
template <class T, class Value>
bool pyg_is_val(const Value & value) {
    pyg_jinja_step();
    return is_val<T>(value);
}

// Values are cast before they are modified.
template <class T, class Value>
auto pyg_cast_val(Value && value) {
    if constexpr (std::is_same_v<T, value_array> || std::is_same_v<T, value_object>) {
        pyg_jinja_changes(value);
    }
    return cast_val<T>(value);
}

// Checks of arguments that upstream's functions would fail on: of `divisibleby`, `range`, `replace` and slices of texts
// and lists, the only ones with such argument types.
template <>
void func_args::ensure_vals<value_int, value_int>(bool, bool) const;
template <>
void func_args::ensure_vals<value_int, value_int, value_int>(bool, bool, bool) const;
template <>
void func_args::ensure_vals<value_string, value_string, value_string, value_int>(bool, bool, bool, bool) const;
template <>
void func_args::ensure_vals<value_string, value_int, value_int, value_int>(bool, bool, bool, bool) const;
template <>
void func_args::ensure_vals<value_array, value_int, value_int, value_int>(bool, bool, bool, bool) const;

}  // namespace jinja

#define is_val pyg_is_val
#define cast_val pyg_cast_val

// Python's sort is stable; and std::sort is undefined for values of mixed types, which have no order.
#define sort stable_sort

// Arguments: two sides, and optionally characters.
#define PYG_JINJA_STRIP(_1, _2, _3, name, ...) name
#define PYG_JINJA_STRIP_SPACE(left, right, ...) strip(left, right)
#define PYG_JINJA_STRIP_CHARACTERS(left, right, characters) strip(left, right, pyg_jinja_different(characters))
#define strip(...) PYG_JINJA_STRIP(__VA_ARGS__, PYG_JINJA_STRIP_CHARACTERS, PYG_JINJA_STRIP_SPACE, )(__VA_ARGS__)
