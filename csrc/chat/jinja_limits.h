// Included before upstream's jinja/runtime.cpp (see vendor/CMakeLists.txt). Templates come with models, and upstream's
// interpreter lets them recurse and loop forever. Its debug macro, expanded before each statement and elsewhere,
// becomes our limit check here, and its table of functions becomes ours.
#pragma once

#include "jinja/runtime.h"

// Throws std::runtime_error when the template on this thread has run too long or recursed too deeply.
void pyg_jinja_step();

// Upstream's functions for templates, with limits on those that could take all memory.
const jinja::func_builtins & pyg_jinja_builtins();

#define global_builtins pyg_jinja_builtins

#undef JJ_DEBUG
#define JJ_DEBUG(...) pyg_jinja_step()
