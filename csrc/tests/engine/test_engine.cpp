// The engine under concurrency: many submitters, shared prefixes, too few cells, cancels, deadlines, wakers, and a
// close with requests in flight. Also run under the sanitizers. argv[1]: a small generative model.
#include "pyggml.h"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

const std::vector<int32_t> PROMPT = {5, 6, 7, 8};

struct Loaded {
    pyg_model *  model  = nullptr;
    pyg_engine * engine = nullptr;

    explicit Loaded(const char * path, uint32_t n_parallel = 4, uint32_t n_ctx = 512, uint32_t max_queue = 0) {
        pyg_error               err;
        const pyg_model_options model_options = pyg_model_default_options();
        CHECK_OK(pyg_model_new(path, &model_options, &model, &err), err);

        pyg_context_options options = pyg_context_default_options();
        options.n_ctx               = n_ctx;
        options.n_seq_max           = n_parallel;
        options.n_threads           = 2;
        pyg_context * context       = nullptr;
        CHECK_OK(pyg_context_new(model, &options, &context, &err), err);
        pyg_engine_options engine_options = pyg_engine_default_options();
        engine_options.n_ctx              = n_ctx;
        engine_options.max_queue          = max_queue;
        CHECK_OK(pyg_engine_new(context, &engine_options, &engine, &err), err);
        pyg_context_free(context);
    }
    ~Loaded() {
        pyg_engine_free(engine);
        pyg_model_free(model);
    }
};

pyg_request_options greedy(int32_t max_tokens) {
    pyg_request_options options = pyg_request_default_options();
    options.max_tokens          = max_tokens;
    options.timeout_s           = -1;
    return options;
}

struct Result {
    std::vector<int32_t> token_ids;
    int32_t              finish   = PYG_FINISH_NONE;
    int32_t              n_cached = 0;
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
    result.finish   = state.finish;
    result.n_cached = state.n_cached;
    return result;
}

pyg_request * submit(const Loaded & loaded, const pyg_request_options & options,
                     const std::vector<int32_t> & prompt = PROMPT) {
    pyg_request * request = nullptr;
    pyg_error     err;
    CHECK_OK(
        pyg_engine_submit(loaded.engine, prompt.data(), static_cast<int32_t>(prompt.size()), &options, &request, &err),
        err);
    return request;
}

Result generate(const Loaded & loaded, const pyg_request_options & options,
                const std::vector<int32_t> & prompt = PROMPT) {
    pyg_request * request = submit(loaded, options, prompt);
    const Result  result  = read_all(request);
    pyg_request_free(request);
    return result;
}

pyg_engine_stats stats_of(const Loaded & loaded) {
    pyg_engine_stats stats;
    pyg_error        err;
    CHECK_OK(pyg_engine_get_stats(loaded.engine, &stats, &err), err);
    return stats;
}

// Different for each seed, and within any model's vocabulary.
std::vector<int32_t> some_prompt(int32_t n, int32_t seed) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < n; i++) {
        prompt.push_back(5 + (i * 7 + seed * 31) % 200);
    }
    return prompt;
}

// Return true if a token is as likely as the best one, within rounding.
bool is_near_tie(const Loaded & loaded, const std::vector<int32_t> & token_ids, int32_t one, int32_t other) {
    constexpr float NEAR_TIE = 0.25F;  // as in tests/soak/stress_world.py
    pyg_error       err;
    pyg_vocab_info  vocab;
    CHECK_OK(pyg_vocab_get_info(loaded.model, &vocab, &err), err);
    const size_t       n_vocab = static_cast<size_t>(vocab.n_tokens);
    std::vector<float> logits(token_ids.size() * n_vocab);
    pyg_request *      request = nullptr;
    CHECK_OK(pyg_engine_submit_logits(loaded.engine, token_ids.data(), static_cast<int32_t>(token_ids.size()), nullptr,
                                      0, logits.data(), &request, &err),
             err);
    read_all(request);
    pyg_request_free(request);
    const float * last = &logits[logits.size() - n_vocab];
    return std::abs(last[one] - last[other]) < NEAR_TIE;
}

// Return true if two outputs are equal up to a near tie: rounding depends on the batch.
bool is_same_answer(const Loaded & loaded, const std::vector<int32_t> & one, const std::vector<int32_t> & other) {
    const size_t n    = std::min(one.size(), other.size());
    const size_t same = std::mismatch(one.begin(), one.begin() + n, other.begin()).first - one.begin();
    if (same == n) {
        return one.size() == other.size();
    }
    std::vector<int32_t> before = PROMPT;
    before.insert(before.end(), one.begin(), one.begin() + same);
    return is_near_tie(loaded, before, one[same], other[same]);
}

void test_every_thread_gets_the_same_answer(const Loaded & loaded) {
    const Result             expected = generate(loaded, greedy(24));
    std::vector<std::thread> threads;
    std::atomic<int>         n_wrong{0};
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 4; turn++) {
                n_wrong += !is_same_answer(loaded, generate(loaded, greedy(24)).token_ids, expected.token_ids);
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
    pyg_request_free(busy);  // freeing it cancels it
}

void test_a_prefix_is_computed_once(const char * path) {
    const Loaded               loaded(path);
    const std::vector<int32_t> shared = some_prompt(200, 1);
    CHECK(generate(loaded, greedy(4), shared).n_cached == 0);
    CHECK(generate(loaded, greedy(4), shared).n_cached == 199);  // the last token is decoded again for its logits

    // Four at once in one batch.
    std::vector<pyg_request *> requests;
    for (int32_t i = 0; i < 4; i++) {
        std::vector<int32_t> prompt(shared.begin(), shared.begin() + 150);
        prompt.push_back(10 + i);
        requests.push_back(submit(loaded, greedy(16), prompt));
    }
    for (pyg_request * request : requests) {
        CHECK(read_all(request).n_cached == 150);
        pyg_request_free(request);
    }
    CHECK(stats_of(loaded).n_cells_cached > 0);
    pyg_error err;
    CHECK_OK(pyg_engine_reset(loaded.engine, &err), err);
    CHECK(generate(loaded, greedy(4), shared).n_cached == 0);
}

void test_too_little_room_is_shared_out(const char * path) {
    const Loaded               loaded(path, 8, 160);
    std::vector<pyg_request *> requests;
    for (int32_t i = 0; i < 24; i++) {
        requests.push_back(submit(loaded, greedy(60), some_prompt(10 + i, i)));
    }
    for (pyg_request * request : requests) {
        const Result result = read_all(request);
        CHECK(result.finish == PYG_FINISH_LENGTH);
        CHECK(result.token_ids.size() == 60);
        pyg_request_free(request);
    }
    const pyg_engine_stats stats = stats_of(loaded);
    CHECK(stats.n_preemptions > 0);
    CHECK(stats.n_finished == 24 && stats.n_running == 0 && stats.n_cells_running == 0);
}

void test_a_full_queue_refuses_and_tells_of_room(const char * path) {
    const Loaded loaded(path, 1, 512, 2);
    pyg_error    err;
    pyg_waker *  waker = nullptr;
    CHECK_OK(pyg_waker_new(&waker, &err), err);

    std::vector<pyg_request *> requests;
    const auto                 options = greedy(400);
    pyg_status                 status  = PYG_OK;
    while (status == PYG_OK) {
        pyg_request * request = nullptr;
        status                = pyg_engine_submit(loaded.engine, PROMPT.data(), 4, &options, &request, &err);
        if (request) {
            requests.push_back(request);
        }
    }
    CHECK(status == PYG_ERR_QUEUE_FULL);
    CHECK(requests.size() >= 3);  // one running, two waiting; more if some have already ended

    CHECK_OK(pyg_engine_notify_when_queue_has_capacity(loaded.engine, waker, 77, &err), err);
    for (pyg_request * request : requests) {
        pyg_request_free(request);
    }
    uint64_t tag = 0;
    int32_t  n   = 0;
    CHECK_OK(pyg_waker_take(waker, 10, &tag, 1, &n, &err), err);
    CHECK(n == 1 && tag == 77);
    CHECK(generate(loaded, greedy(4)).token_ids.size() == 4);
    pyg_waker_free(waker);
}

// One thread sees the ends of many requests only through the waker.
void test_a_waker_serves_many_requests(const Loaded & loaded) {
    pyg_error   err;
    pyg_waker * waker = nullptr;
    CHECK_OK(pyg_waker_new(&waker, &err), err);
    std::vector<pyg_request *> requests;
    std::vector<size_t>        n_tokens(32, 0);
    const auto                 read_now = [&](uint64_t i) {
        pyg_request_state state;
        int32_t           buffer[8];
        int32_t           n = 0;
        CHECK_OK(pyg_request_wait(requests[i], 4, 0, buffer, 8, &n, &state, &err), err);
        n_tokens[i] += static_cast<size_t>(n);
        return state.finish != PYG_FINISH_NONE;
    };
    size_t n_open = 0;
    for (uint64_t i = 0; i < n_tokens.size(); i++) {
        pyg_request_options options = greedy(10);
        options.waker               = waker;
        options.tag                 = i;
        requests.push_back(submit(loaded, options, some_prompt(5, static_cast<int32_t>(i))));
        n_open += !read_now(i);
    }
    while (n_open > 0) {
        uint64_t tags[4];
        int32_t  n = 0;
        CHECK_OK(pyg_waker_take(waker, 10, tags, 4, &n, &err), err);
        CHECK(n > 0);
        for (int32_t i = 0; i < n; i++) {
            while (n_open > 0) {
                const size_t before = n_tokens[tags[i]];
                if (read_now(tags[i])) {
                    n_open--;
                    break;
                }
                if (n_tokens[tags[i]] == before) {
                    break;
                }
            }
        }
    }
    for (size_t i = 0; i < requests.size(); i++) {
        CHECK(n_tokens[i] == 10);
        pyg_request_free(requests[i]);
    }
    pyg_waker_free(waker);
}

// Requests outlive their waker.
void test_a_waker_may_go_first(const Loaded & loaded) {
    pyg_error           err;
    pyg_waker *         waker   = nullptr;
    pyg_request_options options = greedy(50);
    CHECK_OK(pyg_waker_new(&waker, &err), err);
    options.waker         = waker;
    pyg_request * request = submit(loaded, options);
    pyg_waker_free(waker);
    CHECK(read_all(request).token_ids.size() == 50);
    pyg_request_free(request);
}

// Several readers, each of its own request, read while the engine's thread writes.
void test_logprobs_come_with_the_tokens(const Loaded & loaded) {
    constexpr int32_t        K = 3, N_PROMPT = 70;
    std::vector<std::thread> readers;
    for (int32_t i = 0; i < 6; i++) {
        readers.emplace_back([&loaded, i] {
            pyg_request_options options = greedy(40);
            options.n_logprobs          = K;
            options.n_prompt_logprobs   = K;
            pyg_request *     request   = submit(loaded, options, some_prompt(N_PROMPT, i));
            pyg_request_state state     = {};
            pyg_error         err;
            int32_t           token_ids[4], top_ids[N_PROMPT * K], n = 0;
            float             logprobs[N_PROMPT], top[N_PROMPT * K];
            while (state.finish == PYG_FINISH_NONE) {
                CHECK_OK(pyg_request_wait(request, 1, 0.02, token_ids, 4, &n, &state, &err), err);
                CHECK_OK(pyg_request_logprobs(request, false, state.n_read - n, n, logprobs, top_ids, top, &err), err);
                for (int32_t at = 0; at < n; at++) {
                    CHECK(top_ids[at * K] == token_ids[at]);  // greedy takes the likeliest
                    CHECK(top[at * K] == logprobs[at] && logprobs[at] <= 0 && top[at * K + 1] <= top[at * K]);
                }
            }
            CHECK(state.n_read == 40 && state.n_prompt_logprobs == N_PROMPT - 1);
            CHECK_OK(pyg_request_logprobs(request, true, 0, N_PROMPT - 1, logprobs, top_ids, top, &err), err);
            CHECK(pyg_request_logprobs(request, true, 0, N_PROMPT, logprobs, top_ids, top, &err) ==
                  PYG_ERR_INVALID_PARAMETER);
            pyg_request_free(request);
        });
    }
    for (auto & reader : readers) {
        reader.join();
    }
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
    CHECK(pyg_engine_submit(loaded.engine, PROMPT.data(), 4, &options, &request, &err) == PYG_ERR_CLOSED);
    for (pyg_request * each : requests) {
        pyg_request_free(each);
    }
}

void test_bad_requests_are_refused(const Loaded & loaded) {
    pyg_request *       request = nullptr;
    pyg_error           err;
    pyg_request_options options = greedy(4);
    CHECK(pyg_engine_submit(loaded.engine, PROMPT.data(), 0, &options, &request, &err) == PYG_ERR_EMPTY_PROMPT);
    const int32_t wrong[] = {5, -1};
    CHECK(pyg_engine_submit(loaded.engine, wrong, 2, &options, &request, &err) == PYG_ERR_INVALID_PARAMETER);
    const std::vector<int32_t> long_prompt(1000, 5);
    CHECK(pyg_engine_submit(loaded.engine, long_prompt.data(), 1000, &options, &request, &err) ==
          PYG_ERR_CONTEXT_OVERFLOW);
    options.n_logprobs = 1001;
    CHECK(pyg_engine_submit(loaded.engine, PROMPT.data(), 4, &options, &request, &err) == PYG_ERR_INVALID_PARAMETER);
    options.n_logprobs       = 0;
    options.sampling.grammar = "root ::= (";
    CHECK(pyg_engine_submit(loaded.engine, PROMPT.data(), 4, &options, &request, &err) == PYG_ERR_GRAMMAR);
    CHECK(std::strstr(err.message, "line 1") != nullptr);
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    pyg_error err;
    CHECK_OK(pyg_init(".", "", &err), err);
    {
        const Loaded loaded(argv[1]);
        test_every_thread_gets_the_same_answer(loaded);
        test_stop_tokens_end_it_before_they_appear(loaded);
        test_cancel_frees_the_engine(loaded);
        test_deadlines_hold_in_the_queue(loaded);
        test_bad_requests_are_refused(loaded);
        test_a_waker_serves_many_requests(loaded);
        test_a_waker_may_go_first(loaded);
        test_logprobs_come_with_the_tokens(loaded);
    }
    test_a_prefix_is_computed_once(argv[1]);
    test_too_little_room_is_shared_out(argv[1]);
    test_a_full_queue_refuses_and_tells_of_room(argv[1]);
    test_close_with_work_in_flight(argv[1]);
    for (int kind = 0; kind < PYG_HANDLE_KINDS; kind++) {
        CHECK(pyg_live_handles(static_cast<pyg_handle_kind>(kind)) == 0);
    }
    return 0;
}
