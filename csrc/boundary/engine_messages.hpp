// Cause of an engine failure, parsed from its log messages, which is all it gives. After an upgrade of the engine,
// compare the phrases with upstream's format strings: test_engine_messages.cpp quotes them.
#pragma once

#include "boundary/guard.hpp"

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

    Kind                 kind     = OTHER;
    std::string          tensor   = {};              // with TENSOR_MISSING and TENSOR_SHAPE
    std::vector<int64_t> expected = {}, found = {};  // with TENSOR_SHAPE: sizes, innermost first
    std::string          buffer_type = {};           // with NO_MEMORY: the memory that was full
    uint64_t             n_bytes     = 0;            // with NO_MEMORY: the size requested; "" and 0 if unknown
};

FailureCause failure_cause(const std::string & messages);

// PYG_ERR_OUT_OF_MEMORY if the messages mean NO_MEMORY: an allocation failed inside the engine although the planned
// memory was available. `what` begins the error message.
void throw_if_out_of_memory(const std::string & what, const std::string & messages);

// Run body(), which reads a file with upstream's loader. PYG_ERR_MODEL_LOAD for its exceptions.
template <class Body>
auto read_with_loader(const char * path, Body && body) {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception & e) {
        throw_if_out_of_memory(std::string("reading ") + path, engine_error_text());
        throw fail(PYG_ERR_MODEL_LOAD, "%s cannot be read: %s", path, e.what());
    }
}

// Return true if upstream could not allocate the scratch buffers of a context, which it does before computing.
bool is_scratch_allocation_failure(const std::string & messages);

}  // namespace pyg
