// Included before upstream's jinja/value.cpp (see vendor/CMakeLists.txt). A list may be in itself or many times in
// another, so turning it to text may never end. Each value that is turned is asked for its type first: that becomes a
// step too.
#pragma once

#include "jinja/runtime.h"

// Throws std::runtime_error when the template on this thread has run too long or recursed too deeply.
void pyg_jinja_step();

namespace jinja {

template <class T, class Value>
bool pyg_is_val(const Value & value) {
    pyg_jinja_step();
    return is_val<T>(value);
}

}  // namespace jinja

#define is_val pyg_is_val
