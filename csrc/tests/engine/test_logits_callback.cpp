// Logits callbacks: rows of many requests in one call, chosen tokens, failures, calls that would wait for the callback,
// and an engine that is freed or closed while one runs. Also run under the sanitizers. argv[1]: a small generative
// model.
#include "pyggml.h"
#include "tests/support/testing.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace {

const std::vector<int32_t> PROMPT = {5, 6, 7, 8};

pyg_model * open_model(const char * path) {
    pyg_error               err;
    pyg_model *             model   = nullptr;
    const pyg_model_options options = pyg_model_default_options();
    CHECK_OK(pyg_model_new(path, &options, &model, &err), err);
    return model;
}

pyg_engine * start_engine(pyg_model * model) {
    pyg_error           err;
    pyg_context_options options = pyg_context_default_options();
    options.n_ctx               = 1024;
    options.n_seq_max           = 4;
    options.n_threads           = 2;
    pyg_context * context       = nullptr;
    CHECK_OK(pyg_context_new(model, &options, &context, &err), err);
    pyg_engine *       engine         = nullptr;
    pyg_engine_options engine_options = pyg_engine_default_options();
    engine_options.n_ctx              = 1024;
    CHECK_OK(pyg_engine_new(context, &engine_options, &engine, &err), err);
    pyg_context_free(context);
    return engine;
}

pyg_request * submit(pyg_engine * engine, pyg_logits_callback callback, uint64_t processor, int32_t max_tokens = 8) {
    pyg_request_options options = pyg_request_default_options();
    options.max_tokens          = max_tokens;
    options.logits_callback     = callback;
    options.processor           = processor;
    pyg_request * request       = nullptr;
    pyg_error     err;
    CHECK_OK(pyg_engine_submit(engine, PROMPT.data(), static_cast<int32_t>(PROMPT.size()), &options, &request, &err),
             err);
    return request;
}

// The tokens, and the status that the request ended with.
pyg_status read_all(pyg_request * request, std::vector<int32_t> & token_ids, int32_t * finish = nullptr) {
    pyg_request_state state = {};
    while (state.finish == PYG_FINISH_NONE) {
        int32_t          buffer[16];
        int32_t          n = 0;
        pyg_error        err;
        const pyg_status status = pyg_request_wait(request, 4, 1, buffer, 16, &n, &state, &err);
        token_ids.insert(token_ids.end(), buffer, buffer + n);
        if (status != PYG_OK) {
            return status;
        }
    }
    if (finish) {
        *finish = state.finish;
    }
    return PYG_OK;
}

std::vector<int32_t> generate(pyg_engine * engine, pyg_logits_callback callback, uint64_t processor) {
    std::vector<int32_t> token_ids;
    pyg_request *        request = submit(engine, callback, processor);
    CHECK(read_all(request, token_ids) == PYG_OK);
    pyg_request_free(request);
    return token_ids;
}

void copy(pyg_logits_row & row) {
    std::memcpy(row.processed, row.logits, static_cast<size_t>(row.n_vocab) * sizeof(float));
    row.is_done = true;
}

void change_nothing(pyg_logits_row * rows, int32_t n_rows) {
    for (int32_t i = 0; i < n_rows; i++) {
        CHECK(rows[i].n_tokens >= static_cast<int32_t>(PROMPT.size()) && rows[i].token_ids[0] == PROMPT[0]);
        copy(rows[i]);
    }
}

// Only the token that `processor` names is left.
void leave_one(pyg_logits_row * rows, int32_t n_rows) {
    for (int32_t i = 0; i < n_rows; i++) {
        std::fill_n(rows[i].processed, rows[i].n_vocab, -INFINITY);
        rows[i].processed[rows[i].processor] = 0;
        rows[i].is_done                      = true;
    }
}

void choose(pyg_logits_row * rows, int32_t n_rows) {
    for (int32_t i = 0; i < n_rows; i++) {
        copy(rows[i]);
        rows[i].token_id = static_cast<int32_t>(rows[i].processor);
    }
}

// Of the requests with odd numbers only; others are not done.
void do_some(pyg_logits_row * rows, int32_t n_rows) {
    for (int32_t i = 0; i < n_rows; i++) {
        if (rows[i].processor % 2 == 1) {
            copy(rows[i]);
        }
    }
}

void test_results(pyg_engine * engine) {
    const std::vector<int32_t> plain = generate(engine, nullptr, 0);
    CHECK(generate(engine, change_nothing, 0) == plain);
    CHECK(generate(engine, leave_one, 9) == std::vector<int32_t>(8, 9));
    CHECK(generate(engine, choose, 11) == std::vector<int32_t>(8, 11));

    std::vector<pyg_request *> requests;
    for (uint64_t i = 0; i < 12; i++) {
        requests.push_back(submit(engine, i % 3 == 0 ? change_nothing : i % 3 == 1 ? choose : nullptr, 20 + i));
    }
    for (size_t i = 0; i < requests.size(); i++) {
        std::vector<int32_t> token_ids;
        CHECK(read_all(requests[i], token_ids) == PYG_OK);
        CHECK(token_ids == (i % 3 == 1 ? std::vector<int32_t>(8, static_cast<int32_t>(20 + i)) : plain));
        pyg_request_free(requests[i]);
    }
}

void test_failures_end_one_request(pyg_engine * engine) {
    std::vector<pyg_request *> requests;
    for (uint64_t i = 0; i < 8; i++) {
        requests.push_back(submit(engine, do_some, i));
    }
    for (size_t i = 0; i < requests.size(); i++) {
        std::vector<int32_t> token_ids;
        CHECK(read_all(requests[i], token_ids) == (i % 2 == 1 ? PYG_OK : PYG_ERR_INVALID_PARAMETER));
        CHECK(token_ids.size() == (i % 2 == 1 ? 8u : 0u));
        pyg_request_free(requests[i]);
    }
    std::vector<int32_t> token_ids;
    pyg_request *        request = submit(engine, choose, uint64_t{1} << 30);  // no such token
    CHECK(read_all(request, token_ids) == PYG_ERR_INVALID_PARAMETER);
    pyg_request_free(request);
}

pyg_engine *  the_engine  = nullptr;
pyg_request * the_request = nullptr;

void use_its_engine(pyg_logits_row * rows, int32_t n_rows) {
    pyg_error           err;
    pyg_engine_stats    stats;
    pyg_request *       request = nullptr;
    pyg_request_options options = pyg_request_default_options();
    CHECK(pyg_engine_submit(the_engine, PROMPT.data(), 4, &options, &request, &err) == PYG_ERR_INVALID_PARAMETER);
    CHECK(pyg_engine_close(the_engine, &err) == PYG_ERR_INVALID_PARAMETER);
    CHECK(pyg_engine_get_stats(the_engine, &stats, &err) == PYG_ERR_INVALID_PARAMETER);
    int32_t           token_id, n;
    pyg_request_state state;
    CHECK(pyg_request_wait(the_request, 1, -1, &token_id, 1, &n, &state, &err) == PYG_ERR_INVALID_PARAMETER);
    CHECK(pyg_request_wait(the_request, 1, 0, &token_id, 1, &n, &state, &err) == PYG_OK);
    change_nothing(rows, n_rows);
}

void test_calls_that_would_wait(pyg_engine * engine) {
    the_engine  = engine;
    the_request = submit(engine, nullptr, 0, 200);
    generate(engine, use_its_engine, 0);
    pyg_request_free(the_request);
}

std::atomic<bool> is_running{false}, may_end{false};

void wait_for_permission(pyg_logits_row * rows, int32_t n_rows) {
    is_running = true;
    while (!may_end) {
        std::this_thread::yield();
    }
    change_nothing(rows, n_rows);
}

void test_close_waits_for_a_callback(pyg_model * model) {
    pyg_engine *  engine  = start_engine(model);
    pyg_request * request = submit(engine, wait_for_permission, 0, 200);
    while (!is_running) {
        std::this_thread::yield();
    }
    std::thread closing([&] {
        pyg_error err;
        CHECK_OK(pyg_engine_close(engine, &err), err);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    may_end = true;
    closing.join();
    std::vector<int32_t> token_ids;
    int32_t              finish = PYG_FINISH_NONE;
    CHECK(read_all(request, token_ids, &finish) == PYG_OK);
    CHECK(finish == PYG_FINISH_CLOSED);
    pyg_request_free(request);
    pyg_engine_free(engine);
}

std::atomic<int> n_freed{0};

void free_its_engine(pyg_logits_row * rows, int32_t n_rows) {
    if (n_freed++ == 0) {
        pyg_engine_free(the_engine);
    }
    change_nothing(rows, n_rows);
}

void test_a_callback_may_free_its_engine(pyg_model * model) {
    the_engine                   = start_engine(model);
    pyg_request *        request = submit(the_engine, free_its_engine, 0, 500);
    std::vector<int32_t> token_ids;
    int32_t              finish = PYG_FINISH_NONE;
    CHECK(read_all(request, token_ids, &finish) == PYG_OK);
    CHECK(finish == PYG_FINISH_CLOSED);
    pyg_request_free(request);
    while (pyg_live_handles(PYG_HANDLE_ENGINE) > 0) {  // another thread frees it
        std::this_thread::yield();
    }
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    pyg_error err;
    CHECK_OK(pyg_init(".", "", &err), err);
    pyg_model *  model  = open_model(argv[1]);
    pyg_engine * engine = start_engine(model);
    test_results(engine);
    test_failures_end_one_request(engine);
    test_calls_that_would_wait(engine);
    pyg_engine_free(engine);
    test_close_waits_for_a_callback(model);
    test_a_callback_may_free_its_engine(model);
    pyg_model_free(model);
    for (int kind = 0; kind < PYG_HANDLE_KINDS; kind++) {
        CHECK(pyg_live_handles(static_cast<pyg_handle_kind>(kind)) == 0);
    }
    return 0;
}
