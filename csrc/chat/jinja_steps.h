// Included before upstream's jinja/runtime.cpp, besides jinja_limits.h. Its debug macro, expanded before each statement
// and elsewhere, becomes our limit check here.
#pragma once

#include "jinja_limits.h"

#undef JJ_DEBUG
#define JJ_DEBUG(...) pyg_jinja_step()
