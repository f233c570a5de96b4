// Compiled into upstream's jinja/runtime.cpp in front of it (see vendor/CMakeLists.txt). Templates come with models,
// and the interpreter lets them call themselves and loop without end; but before each statement, and at other places,
// it has a macro for debugging, which here looks after that instead. Its
// table of functions is replaced by ours.
#pragma once

#include "jinja/runtime.h"

// Throws std::runtime_error when the template on this thread has gone on too long or too deep.
void pyg_jinja_step();

// Upstream's functions for templates, but for those that could take all memory.
const jinja::func_builtins & pyg_jinja_builtins();

#define global_builtins pyg_jinja_builtins

#undef JJ_DEBUG
#define JJ_DEBUG(...) pyg_jinja_step()
