// Headers of GGUF files. Foreign, damaged and incomplete files are refused here, by the same messages for every caller.
#pragma once

#include "ggml-cpp.h"
#include "gguf.h"

#include <cstdint>
#include <string>

namespace pyg {

struct GgufHeader {
    gguf_context_ptr raw;
    uint64_t         file_size;
};

// Read the header of a file. PYG_ERR_MODEL_NOT_FOUND; PYG_ERR_MODEL_LOAD if it is another kind of file or damaged.
GgufHeader read_gguf_header(const std::string & path);

// PYG_ERR_MODEL_LOAD unless the file is as long as its header says.
void require_all_data(const std::string & path, const GgufHeader & header);

// Read the header of a file that has all its data, and check the other files of its split set in the same way.
gguf_context_ptr read_whole_gguf(const std::string & path);

}  // namespace pyg
