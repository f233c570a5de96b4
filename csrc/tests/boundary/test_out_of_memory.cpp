// Allocations that fail although the plan said they would fit: load, context, decode or request fail with the reason,
// and the next one works. argv[1]: a small generative model.
#include "llama.h"
#include "pyggml.h"
#include "tests/support/testing.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t LARGE = size_t{32} << 20;

bool refuses_large = false;

}  // namespace

// Replaces the standard library's function, which the CPU's buffers use.
extern "C" int posix_memalign(void ** pointer, size_t alignment, size_t size) {
    if (refuses_large && size > LARGE) {
        return ENOMEM;
    }
    *pointer = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    return *pointer ? 0 : ENOMEM;
}

namespace {

const std::vector<int32_t> PROMPT = {5, 6, 7, 8};

// While it lives, no memory is available.
struct NoMoreMemory {
    NoMoreMemory() { refuses_large = true; }
    ~NoMoreMemory() { refuses_large = false; }
};

// Make upstream reallocate its scratch buffers before the next batch, as it does when a graph needs more.
void renew(llama_context * context) { llama_set_adapter_cvec(context, nullptr, 0, 0, 0, 0); }

pyg_context * new_context(pyg_model * model) {
    pyg_error           err;
    pyg_context *       context = nullptr;
    pyg_context_options options = pyg_context_default_options();
    options.n_ctx               = 2048;
    options.n_batch             = 2048;
    options.n_ubatch            = 2048;  // more than 32 MB of scratch, mostly for as many rows of logits
    options.n_threads           = 1;
    CHECK_OK(pyg_context_new(model, &options, &context, &err), err);
    return context;
}

llama_context * raw(pyg_context * context) {
    pyg_error       err;
    llama_context * raw = nullptr;
    CHECK_OK(pyg_context_get(context, &raw, &err), err);
    return raw;
}

pyg_status decode(pyg_context * context, pyg_error * err) {
    pyg_batch batch = {};
    batch.n_tokens  = static_cast<int32_t>(PROMPT.size());
    batch.token_ids = PROMPT.data();
    int32_t n       = 0;
    return pyg_context_decode(context, &batch, &n, err);
}

void require_the_reason(const pyg_error & err) {
    CHECK(err.code == PYG_ERR_OUT_OF_MEMORY);
    CHECK(std::strstr(err.message, "computing the batch"));
    CHECK(err.required_bytes > LARGE);
}

// Weights and KV cache.
void test_making(const char * path) {
    pyg_error         err;
    pyg_model *       model   = nullptr;
    pyg_model_options options = pyg_model_default_options();
    CHECK_OK(pyg_model_new(path, &options, &model, &err), err);
    pyg_context_options large   = pyg_context_default_options();
    pyg_context *       context = nullptr;
    large.n_ctx                 = 1 << 16;
    {
        const NoMoreMemory none;
        CHECK(pyg_context_new(model, &large, &context, &err) == PYG_ERR_OUT_OF_MEMORY);
        CHECK(std::strstr(err.message, "CPU") && err.required_bytes > LARGE);
    }
    CHECK_OK(pyg_context_new(model, &large, &context, &err), err);
    pyg_context_free(context);
    pyg_model_free(model);
}

void test_a_context(pyg_model * model) {
    pyg_error     err;
    pyg_context * context = new_context(model);
    CHECK_OK(decode(context, &err), err);
    for (int i = 0; i < 2; i++) {
        renew(raw(context));
        {
            const NoMoreMemory none;
            CHECK(decode(context, &err) != PYG_OK);
            require_the_reason(err);
            CHECK(decode(context, &err) != PYG_OK);  // not with null pointers for its scratch
            require_the_reason(err);
        }
        CHECK_OK(decode(context, &err), err);
    }
    pyg_context_free(context);
}

std::vector<int32_t> generate(pyg_engine * engine, pyg_error * err) {
    pyg_request_options options = pyg_request_default_options();
    options.max_tokens          = 8;
    pyg_request * request       = nullptr;
    CHECK_OK(pyg_engine_submit(engine, PROMPT.data(), static_cast<int32_t>(PROMPT.size()), &options, &request, err),
             *err);
    std::vector<int32_t> token_ids(8);
    int32_t              n     = 0;
    pyg_request_state    state = {};
    const pyg_status     status =
        pyg_request_wait(request, options.max_tokens, -1, token_ids.data(), options.max_tokens, &n, &state, err);
    pyg_request_free(request);
    token_ids.resize(status == PYG_OK ? static_cast<size_t>(n) : 0);
    return token_ids;
}

void test_an_engine(pyg_model * model) {
    pyg_error             err;
    pyg_context *         context = new_context(model);
    llama_context * const inside  = raw(context);
    pyg_engine *          engine  = nullptr;
    pyg_engine_options    options = pyg_engine_default_options();
    options.adapt_threads         = false;
    CHECK_OK(pyg_engine_new(context, &options, &engine, &err), err);
    pyg_context_free(context);
    const std::vector<int32_t> expected = generate(engine, &err);
    CHECK(expected.size() == 8);
    renew(inside);  // while the engine is idle
    {
        const NoMoreMemory none;
        CHECK(generate(engine, &err).empty());
        require_the_reason(err);
    }
    CHECK(generate(engine, &err) == expected);
    pyg_engine_free(engine);
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    pyg_error err;
    CHECK_OK(pyg_init(".", "", &err), err);
    test_making(argv[1]);
    pyg_model *             model   = nullptr;
    const pyg_model_options options = pyg_model_default_options();
    CHECK_OK(pyg_model_new(argv[1], &options, &model, &err), err);
    test_a_context(model);
    test_an_engine(model);
    pyg_model_free(model);
    for (const auto kind : {PYG_HANDLE_MODEL, PYG_HANDLE_CONTEXT, PYG_HANDLE_ENGINE, PYG_HANDLE_REQUEST}) {
        CHECK(pyg_live_handles(kind) == 0);
    }
    return 0;
}
