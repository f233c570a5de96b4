// Included before upstream's jinja/runtime.cpp and jinja/value.cpp (see vendor/CMakeLists.txt). Templates come with
// models, and upstream's interpreter lets them loop and recurse forever, divide by zero and leave memory behind.
#pragma once

#include "jinja/runtime.h"
#include "json.h"
#include "unicode.h"

#include <algorithm>
#include <optional>

// Throws std::runtime_error when the template on this thread has run too long, recursed too deeply or taken too much
// memory.
void pyg_jinja_step();

// Remembers a list or an object that the template changes: it may come to hold itself, and then nothing frees it.
void pyg_jinja_changes(const jinja::value & value);

// The different ones of the characters to strip: upstream looks at all of them for each of a text's.
std::string pyg_jinja_different(const std::string & characters);

namespace jinja {

// Each value that becomes a text is asked for its type, and a list may be in itself or many times in another.
template <class T, class Value>
bool pyg_is_val(const Value & value) {
    pyg_jinja_step();
    return is_val<T>(value);
}

// What is changed is cast first.
template <class T, class Value>
auto pyg_cast_val(Value && value) {
    if constexpr (std::is_same_v<T, value_array> || std::is_same_v<T, value_object>) {
        pyg_jinja_changes(value);
    }
    return cast_val<T>(value);
}

// What upstream's functions demand of their arguments, with what they would fail at: of `divisibleby`, `range`,
// `replace` and the slices of texts and lists, the only ones that take such arguments.
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

// Python's sort keeps the order of what is equal; and std::sort is undefined for values of several types, which are in
// no order.
#define sort stable_sort

// What it is given: two sides, and perhaps characters.
#define PYG_JINJA_STRIP(_1, _2, _3, name, ...) name
#define PYG_JINJA_STRIP_SPACE(left, right, ...) strip(left, right)
#define PYG_JINJA_STRIP_CHARACTERS(left, right, characters) strip(left, right, pyg_jinja_different(characters))
#define strip(...) PYG_JINJA_STRIP(__VA_ARGS__, PYG_JINJA_STRIP_CHARACTERS, PYG_JINJA_STRIP_SPACE, )(__VA_ARGS__)
