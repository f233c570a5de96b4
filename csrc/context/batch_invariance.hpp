// Which operations of a context may give a row other bits beside other rows than alone.
#pragma once

#include "boundary/handles.hpp"

#include <set>
#include <string>

namespace pyg {

// Names of operations, of the types they read and of the devices that are not the CPU, such as "MUL_MAT q4_K on CUDA0".
// Empty: none, of all that the context may be asked to decode. Not to be called beside a decode.
std::set<std::string> not_batch_invariant(Context & context);

}  // namespace pyg
