// What upstream means by the words of a failure, which is all it gives. After an upgrade of the engine, compare the
// phrases with upstream's format strings: test_engine_words.cpp has them as upstream writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

struct Complaint {
    enum Kind { UNKNOWN_ARCHITECTURE, NO_MEMORY, TENSOR_MISSING, TENSOR_SHAPE, TENSORS_LEFT_OVER, OTHER };

    Kind                 kind = OTHER;
    std::string          tensor;           // with TENSOR_MISSING and TENSOR_SHAPE
    std::vector<int64_t> expected, found;  // with TENSOR_SHAPE: sizes, innermost first
};

Complaint understood(const std::string & words);

}  // namespace pyg
