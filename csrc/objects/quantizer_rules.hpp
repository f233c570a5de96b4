// Upstream's quantiser keeps most of its rules to itself: what it exports forgets that there is an importance matrix,
// and tells nothing of which types need one. So its file is compiled here a second time, where all of it can be seen.
#pragma once

#include "llama-ext.h"
#include "llama-impl.h"
#include "llama-model-loader.h"
#include "llama-model.h"
#include "llama.h"

// What it includes, so that nothing but the file itself ends up in our namespace.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <regex>
#include <thread>
#include <unordered_map>

namespace {

// Its arguments' types are global, and with them the exported function of this name would be found as well.
#define llama_ftype_get_default_type default_type_of
#include "llama-quant.cpp"
#undef llama_ftype_get_default_type

}  // namespace
