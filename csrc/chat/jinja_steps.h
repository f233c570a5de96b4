// Included before upstream's jinja/runtime.cpp, in addition to jinja_limits.h. Its debug macro, which is expanded
// before each statement, becomes our limit check.
#pragma once

#include "jinja_limits.h"

#undef JJ_DEBUG
#define JJ_DEBUG(...) pyg_jinja_step()
