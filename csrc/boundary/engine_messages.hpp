// What upstream means by the words of a failure, which is all it gives. After an upgrade of the engine, compare the
// phrases with upstream's format strings: test_engine_messages.cpp has them as upstream writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

struct FailureCause {
    enum Kind {
        UNKNOWN_ARCHITECTURE,
        NOT_DIVISIBLE,
        NO_MEMORY,
        TENSOR_MISSING,
        TENSOR_SHAPE,
        TENSORS_LEFT_OVER,
        OTHER
    };

    Kind                 kind = OTHER;
    std::string          tensor;           // with TENSOR_MISSING and TENSOR_SHAPE
    std::vector<int64_t> expected, found;  // with TENSOR_SHAPE: sizes, innermost first
    std::string          buffer_type;      // with NO_MEMORY: the memory that was full, and what was asked of it;
    uint64_t             n_bytes = 0;      // "" and 0 where upstream does not say
};

FailureCause failure_cause(const std::string & messages);

// Whether upstream could not make the scratch buffers of a context, as it does before it computes anything.
bool is_scratch_allocation_failure(const std::string & messages);

}  // namespace pyg
