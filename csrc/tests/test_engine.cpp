// The engine under threads: many submitters, cancels, deadlines, and a close with work in flight. Run under the
// sanitizers too. argv[1]: a small generative model.
#include "pyggml.h"
#include "testing.hpp"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

const int32_t PROMPT[] = {5, 6, 7, 8};

struct Loaded {
    pyg_model *  model  = nullptr;
    pyg_engine * engine = nullptr;

    explicit Loaded(const char * path) {
        pyg_error               err;
        const pyg_model_options model_options = pyg_model_default_options();
        CHECK_OK(pyg_model_new(path, &model_options, &model, &err), err);

        pyg_context_options options = pyg_context_default_options();
        options.n_ctx               = 256;
        options.n_threads           = 2;
        pyg_context * context       = nullptr;
        CHECK_OK(pyg_context_new(model, &options, &context, &err), err);
        CHECK_OK(pyg_engine_new(context, 0, &engine, &err), err);
        pyg_context_free(context);
    }
    ~Loaded() {
        pyg_engine_free(engine);
        pyg_model_free(model);
    }
};

pyg_request_options greedy(int32_t max_tokens) {
    pyg_request_options options     = {};
    options.sampling.top_p          = 1;
    options.sampling.typical_p      = 1;
    options.sampling.repeat_penalty = 1;
    options.max_tokens              = max_tokens;
    options.timeout_s               = -1;
    return options;
}

struct Result {
    std::vector<int32_t> token_ids;
    int32_t              finish = PYG_FINISH_NONE;
};

Result read_all(pyg_request * request) {
    Result            result;
    pyg_request_state state = {};
    while (state.finish == PYG_FINISH_NONE) {
        int32_t   buffer[16];
        int32_t   n = 0;
        pyg_error err;
        CHECK_OK(pyg_request_wait(request, 4, 0.02, buffer, 16, &n, &state, &err), err);
        result.token_ids.insert(result.token_ids.end(), buffer, buffer + n);
    }
    result.finish = state.finish;
    return result;
}

pyg_request * submit(const Loaded & loaded, const pyg_request_options & options) {
    pyg_request * request = nullptr;
    pyg_error     err;
    CHECK_OK(pyg_engine_submit(loaded.engine, PROMPT, 4, &options, &request, &err), err);
    return request;
}

Result generate(const Loaded & loaded, const pyg_request_options & options) {
    pyg_request * request = submit(loaded, options);
    const Result  result  = read_all(request);
    pyg_request_free(request);
    return result;
}

void test_every_thread_gets_the_same_answer(const Loaded & loaded) {
    const Result             expected = generate(loaded, greedy(24));
    std::vector<std::thread> threads;
    std::atomic<int>         n_wrong{0};
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 4; turn++) {
                n_wrong += generate(loaded, greedy(24)).token_ids != expected.token_ids;
            }
        });
    }
    for (auto & thread : threads) {
        thread.join();
    }
    CHECK(n_wrong == 0);
    CHECK(expected.token_ids.size() == 24);
    CHECK(expected.finish == PYG_FINISH_LENGTH);
}

void test_stop_tokens_end_it_before_they_appear(const Loaded & loaded) {
    const Result        full    = generate(loaded, greedy(24));
    pyg_request_options options = greedy(24);
    options.stop_token_ids      = &full.token_ids[5];
    options.n_stop              = 1;
    const Result stopped        = generate(loaded, options);
    CHECK(stopped.finish == PYG_FINISH_STOP);
    CHECK(stopped.token_ids.size() <= 5);
}

void test_cancel_frees_the_engine(const Loaded & loaded) {
    std::vector<pyg_request *> requests;
    for (int i = 0; i < 16; i++) {
        requests.push_back(submit(loaded, greedy(200)));
    }
    std::thread canceller([&] {
        for (pyg_request * request : requests) {
            pyg_request_cancel(request);
        }
    });
    for (pyg_request * request : requests) {
        const int32_t finish = read_all(request).finish;
        CHECK(finish == PYG_FINISH_CANCELLED || (finish == PYG_FINISH_LENGTH && request == requests.front()));
    }
    canceller.join();
    for (pyg_request * request : requests) {
        pyg_request_free(request);
    }
    CHECK(generate(loaded, greedy(4)).token_ids.size() == 4);
}

void test_deadlines_hold_in_the_queue(const Loaded & loaded) {
    pyg_request *       busy    = submit(loaded, greedy(200));
    pyg_request_options options = greedy(4);
    options.timeout_s           = 0;
    CHECK(generate(loaded, options).finish == PYG_FINISH_TIMEOUT);
    pyg_request_free(busy);  // dropping it cancels it
}

void test_close_with_work_in_flight(const char * path) {
    Loaded                     loaded(path);
    std::vector<pyg_request *> requests;
    for (int i = 0; i < 8; i++) {
        requests.push_back(submit(loaded, greedy(200)));
    }
    std::vector<std::thread> readers;
    std::atomic<int>         n_closed{0};
    for (pyg_request * request : requests) {
        readers.emplace_back([&n_closed, request] { n_closed += read_all(request).finish == PYG_FINISH_CLOSED; });
    }
    pyg_error err;
    CHECK_OK(pyg_engine_close(loaded.engine, &err), err);
    for (auto & reader : readers) {
        reader.join();
    }
    CHECK(n_closed >= 7);  // all but perhaps the one that was running
    pyg_request *             request = nullptr;
    const pyg_request_options options = greedy(4);
    CHECK(pyg_engine_submit(loaded.engine, PROMPT, 4, &options, &request, &err) == PYG_ERR_CLOSED);
    for (pyg_request * each : requests) {
        pyg_request_free(each);
    }
}

void test_bad_requests_are_refused(const Loaded & loaded) {
    pyg_request *       request = nullptr;
    pyg_error           err;
    pyg_request_options options = greedy(4);
    CHECK(pyg_engine_submit(loaded.engine, PROMPT, 0, &options, &request, &err) == PYG_ERR_EMPTY_PROMPT);
    const int32_t wrong[] = {5, -1};
    CHECK(pyg_engine_submit(loaded.engine, wrong, 2, &options, &request, &err) == PYG_ERR_INVALID_PARAMETER);
    const std::vector<int32_t> long_prompt(1000, 5);
    CHECK(pyg_engine_submit(loaded.engine, long_prompt.data(), 1000, &options, &request, &err) ==
          PYG_ERR_CONTEXT_OVERFLOW);
    options.sampling.grammar = "root ::= (";
    CHECK(pyg_engine_submit(loaded.engine, PROMPT, 4, &options, &request, &err) == PYG_ERR_GRAMMAR);
    CHECK(std::strstr(err.message, "line 1") != nullptr);
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    pyg_error err;
    CHECK_OK(pyg_init(".", &err), err);
    {
        const Loaded loaded(argv[1]);
        test_every_thread_gets_the_same_answer(loaded);
        test_stop_tokens_end_it_before_they_appear(loaded);
        test_cancel_frees_the_engine(loaded);
        test_deadlines_hold_in_the_queue(loaded);
        test_bad_requests_are_refused(loaded);
    }
    test_close_with_work_in_flight(argv[1]);
    for (int kind = 0; kind < PYG_HANDLE_KINDS; kind++) {
        CHECK(pyg_live_handles(static_cast<pyg_handle_kind>(kind)) == 0);
    }
    return 0;
}
