// Compiled into upstream's jinja/runtime.cpp in front of it (see vendor/CMakeLists.txt). Templates come with models,
// and the interpreter lets them call themselves and loop without end; but before each statement, and at other places,
// it has a macro for debugging, which here looks after that instead.
#pragma once

#include "jinja/runtime.h"

// Throws std::runtime_error when the template on this thread has gone on too long or too deep.
void pyg_jinja_step();

#undef JJ_DEBUG
#define JJ_DEBUG(...) pyg_jinja_step()
