// Phrases of upstream's log messages, each with the file that contains it: compare them after an upgrade of the engine.
#include "boundary/engine_messages.hpp"
#include "boundary/guard.hpp"
#include "tests/support/testing.hpp"

namespace {

using pyg::failure_cause;
using pyg::FailureCause;

using Sizes = std::vector<int64_t>;

void check_architectures() {  // src/llama-model.cpp
    CHECK(failure_cause("error loading model: unknown model architecture: 'mamba9'").kind ==
          FailureCause::UNKNOWN_ARCHITECTURE);
    CHECK(failure_cause("unknown model architecture: 'out of memory'").kind == FailureCause::UNKNOWN_ARCHITECTURE);
}

void check_tensors() {  // src/llama-model-loader.{h,cpp}
    for (const char * messages :
         {"tensor 'output.weight' not found in the model", "get_tensor_meta: tensor 'output.weight' not found",
          "missing tensor 'output.weight'"}) {
        const FailureCause missing = failure_cause(messages);
        CHECK(missing.kind == FailureCause::TENSOR_MISSING);
        CHECK(missing.tensor == "output.weight");
    }
    const FailureCause shape = failure_cause("check_tensor_dims: tensor 'blk.0.attn_q.weight' has wrong shape; "
                                             "expected    576,   1536, got    576, 49152000000,      1,      1");
    CHECK(shape.kind == FailureCause::TENSOR_SHAPE);
    CHECK(shape.tensor == "blk.0.attn_q.weight");
    CHECK((shape.expected == Sizes{576, 1536}));
    CHECK((shape.found == Sizes{576, 49152000000, 1, 1}));

    CHECK(failure_cause("done_getting_tensors: wrong number of tensors; expected 290, got 288").kind ==
          FailureCause::TENSORS_LEFT_OVER);
}

void check_memory() {
    for (const char * messages : {
             "unable to allocate CUDA0 buffer",                                             // src/llama-model.cpp
             "failed to allocate buffer for kv cache",                                      // src/llama-kv-cache.cpp
             "failed to allocate compute pp buffers",                                       // src/llama-context.cpp
             "ggml_aligned_malloc: insufficient memory (attempted to allocate   0.00 MB)",  // ggml/src/ggml.c
             "llama_model_load: error loading model: std::bad_alloc",                       // src/llama.cpp
             "gguf_init_from_reader: encountered bad_alloc error while reading key 6",      // ggml/src/gguf.cpp
             "vk::Device::allocateMemory: ErrorOutOfDeviceMemory",                          // the Vulkan headers
             "allocating 1.00 MiB on device 0: cudaMalloc failed: out of memory",  // ggml/src/ggml-cuda/ggml-cuda.cu
         }) {
        CHECK(failure_cause(messages).kind == FailureCause::NO_MEMORY);
        CHECK(failure_cause(messages).n_bytes == 0);
    }
    const FailureCause cause =
        failure_cause("llama_context: n_ctx_seq (1024) < n_ctx_train (4096); "
                      "ggml_backend_buft_alloc_buffer_n_default: failed to allocate "
                      "RPC0[127.0.0.1:1] buffer of size 2560491520");  // ggml/src/ggml-backend.cpp
    CHECK(cause.kind == FailureCause::NO_MEMORY);
    CHECK(cause.buffer_type == "RPC0[127.0.0.1:1]" && cause.n_bytes == 2560491520);
    CHECK(pyg::is_scratch_allocation_failure("failed to allocate compute tg buffers"));  // src/llama-context.cpp
    CHECK(!pyg::is_scratch_allocation_failure("failed to allocate buffer for kv cache"));
}

void check_split() {
    CHECK(failure_cause("error loading model: LLAMA_SPLIT_MODE_TENSOR not implemented for architecture 'mamba'").kind ==
          FailureCause::NOT_DIVISIBLE);  // src/llama-model.cpp
}

void check_others() {
    for (const char * messages : {"", "missing tensor info mapping for output.weight", "tensor 'output.weight",
                                  "key not found in model: llama.block_count"}) {
        const FailureCause other = failure_cause(messages);
        CHECK(other.kind == FailureCause::OTHER);
        CHECK(other.tensor.empty());
    }
}

// The examples of pyggml/units.py, and the edges between units.
void check_bytes_text() {
    CHECK(pyg::bytes_text(0) == "0 B");
    CHECK(pyg::bytes_text(999) == "999 B");
    CHECK(pyg::bytes_text(1'000) == "1.00 kB");
    CHECK(pyg::bytes_text(3'812'000) == "3.81 MB");
    CHECK(pyg::bytes_text(38'120'000) == "38.1 MB");
    CHECK(pyg::bytes_text(999'499'999) == "999 MB");
    CHECK(pyg::bytes_text(999'500'000) == "1.00 GB");
    CHECK(pyg::bytes_text(UINT64_MAX) == "18447 PB");
}

}  // namespace

int main() {
    check_architectures();
    check_tensors();
    check_memory();
    check_split();
    check_others();
    check_bytes_text();
    return 0;
}
