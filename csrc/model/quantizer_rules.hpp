// Rules of upstream's quantiser. It does not export most of them: its public function ignores importance matrices and
// does not say which types need one. So its source file is compiled a second time here.
#pragma once

#include "llama-ext.h"
#include "llama-impl.h"
#include "llama-model-loader.h"
#include "llama-model.h"
#include "llama.h"

// Its includes, so that only the file itself ends up in our namespace.
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

// Its arguments' types are global, so lookup would also find the exported function of this name.
#define llama_ftype_get_default_type default_type_of
#include "llama-quant.cpp"
#undef llama_ftype_get_default_type

}  // namespace
