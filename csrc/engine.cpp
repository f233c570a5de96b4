// The engine: one context, one native thread, a queue of requests.
//
// Callers only queue requests and read from them; the thread alone touches the context. Two locks exist and are
// never held over work that takes long: the engine's (queue, counters) and each request's (its tokens and phase).
// The engine's may be held while taking a request's, never the other way round.
#include "scheduler.hpp"
#include "threads.hpp"

#include <condition_variable>
#include <cstring>
#include <thread>
#include <utility>

namespace {

using pyg::Clock;
using pyg::fail;
using pyg::Request;

// Positions and sequence ids are left to the engine (one sequence, going on where it stands).
llama_batch batch_of(const int32_t * token_ids, int32_t n, int8_t * output) {
    llama_batch batch = llama_batch_get_one(const_cast<int32_t *>(token_ids), n);
    batch.logits      = output;
    return batch;
}

// From 64 rows on, upstream's flash attention on the CPU changes to a tiled kernel that rounds differently, and a
// quantised model turns that into differences of a percent. Below, a row comes out as a decode of single tokens
// would have it.
constexpr int32_t LOGITS_ROWS = 32;

constexpr int32_t DECODE_ABORTED = 2;  // llama_decode's answer when the abort callback said so

pyg::Failure broken() {
    return fail(PYG_ERR_ENGINE, "a check inside the engine failed during an earlier request, so it cannot go on: "
                                "close it and load the model again");
}

void require_generative(const pyg::Context & context) {
    if (!llama_get_memory(context.raw) || llama_model_has_encoder(context.model->raw)) {
        throw fail(PYG_ERR_UNSUPPORTED_ARCH,
                   "%s does not generate text token by token (an encoder or an embedding "
                   "model): use Context for it",
                   context.model->path.c_str());
    }
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

namespace pyg {

class Engine {
  public:
    Engine(std::shared_ptr<Context> context, uint32_t n_ctx);
    ~Engine();
    Engine(const Engine &)             = delete;
    Engine & operator=(const Engine &) = delete;

    void             submit(std::shared_ptr<Request> request);
    void             reset();
    pyg_engine_stats stats() const;

    std::shared_ptr<Model> model() const { return model_; }
    uint32_t               n_ctx() const { return n_ctx_; }

  private:
    // How a request ended.
    struct End {
        pyg_finish finish;
        int32_t    stop_token_id = -1;
    };

    void                     run();
    std::shared_ptr<Request> next();
    void                     serve(Request & request);
    void                     set_running(std::shared_ptr<Request> request);
    void                     break_down();
    End                      generate(Request & request);
    End                      fill_logits(Request & request);

    // These return why the request must stop now, if it must.
    std::optional<pyg_finish> prefill(Request & request);
    std::optional<pyg_finish> decode(const Request & request, const int32_t * token_ids, int32_t n, int8_t * output);
    std::optional<pyg_finish> interruption(const Request & request) const;

    void        forget();
    void        publish(Request & request, int32_t token_id);
    void        count_prefill(Request & request, int32_t n, Clock::time_point start);
    void        count_decode(Clock::time_point start);
    static bool should_abort(void * self);

    const std::shared_ptr<Model> model_;
    std::shared_ptr<Context>     context_;
    const uint32_t               n_ctx_;
    const int32_t                n_vocab_;
    const int32_t                n_batch_;

    mutable std::mutex       mutex_;
    std::condition_variable  work_;
    Scheduler                scheduler_;
    std::shared_ptr<Request> running_;
    pyg_engine_stats         stats_       = {};
    bool                     reset_asked_ = false;
    bool                     broken_      = false;  // an assert unwound through the context
    std::atomic<bool>        closing_{false};

    std::thread thread_;  // last: starts when everything else is in place
};

Engine::Engine(std::shared_ptr<Context> context, uint32_t n_ctx)
    : model_(context->model), context_(std::move(context)), n_ctx_(n_ctx), n_vocab_(context_->model->n_vocab()),
      n_batch_(static_cast<int32_t>(llama_n_batch(context_->raw))) {
    const SignalsBlocked signals_go_to_the_callers_threads;
    thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    work_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
    if (broken_) {
        new std::shared_ptr<Context>(std::move(context_));  // leaked on purpose: its state is unknown
    }
}

void Engine::submit(std::shared_ptr<Request> request) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (broken_) {
            throw broken();
        }
        scheduler_.add(std::move(request));
        stats_.n_requests++;
    }
    work_.notify_one();
}

void Engine::reset() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (broken_) {
            throw broken();
        }
        reset_asked_ = true;
    }
    work_.notify_one();
}

pyg_engine_stats Engine::stats() const {
    std::lock_guard<std::mutex> lock(mutex_);
    pyg_engine_stats            stats = stats_;
    stats.n_queued                    = static_cast<int32_t>(scheduler_.n_waiting());
    stats.n_running                   = running_ ? 1 : 0;
    return stats;
}

void Engine::run() {
    name_this_thread("pyggml-engine");
    llama_set_abort_callback(context_->raw, should_abort, this);
    while (const auto request = next()) {
        serve(*request);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto & request : scheduler_.drain()) {
        request->end(PYG_FINISH_CLOSED);
    }
}

// Sleeps until there is a request to run; null when the engine is closing.
std::shared_ptr<Request> Engine::next() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        if (closing_) {
            return nullptr;
        }
        if (const auto request = scheduler_.next()) {
            return running_ = request;
        }
        if (std::exchange(reset_asked_, false) && !broken_) {
            lock.unlock();
            pyg_error ignored;
            guard(&ignored, [&] { forget(); });
            lock.lock();
            continue;
        }
        work_.wait(lock, [&] { return closing_ || reset_asked_ || !scheduler_.empty(); });
    }
}

void Engine::serve(Request & request) {
    pyg_error        error;
    const pyg_status status = guard(&error, [&] {
        try {
            forget();
            const End end = request.logits ? fill_logits(request) : generate(request);
            set_running(nullptr);
            request.end(end.finish, end.stop_token_id);
        } catch (const EngineAbort &) {
            break_down();
            throw;
        }
    });
    if (status != PYG_OK) {
        set_running(nullptr);
        request.end(error);
    }
}

void Engine::set_running(std::shared_ptr<Request> request) {
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = std::move(request);
}

// After an assert inside the engine nothing of the context can be trusted: whoever waits is told, and no more
// requests are taken.
void Engine::break_down() {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_ = true;
    pyg_error error;
    report(&error, broken());
    for (const auto & request : scheduler_.drain()) {
        request->end(error);
    }
}

Engine::End Engine::generate(Request & request) {
    if (const auto why = prefill(request)) {
        return {*why};
    }
    int8_t   output = 1;
    uint32_t n_past = static_cast<uint32_t>(request.prompt.size());
    for (int32_t n_left = request.max_tokens; n_left > 0; n_left--) {
        const int32_t token_id = request.sampler()->sample(context_->raw, n_vocab_, -1);
        if (request.is_stop(token_id)) {
            return {PYG_FINISH_STOP, token_id};
        }
        publish(request, token_id);
        if (n_left == 1 || n_past == n_ctx_) {
            break;
        }
        const auto start = Clock::now();
        if (const auto why = decode(request, &token_id, 1, &output)) {
            return {*why};
        }
        count_decode(start);
        n_past++;
    }
    return {PYG_FINISH_LENGTH};
}

std::optional<pyg_finish> Engine::prefill(Request & request) {
    const int32_t       n_prompt = static_cast<int32_t>(request.prompt.size());
    std::vector<int8_t> output(request.prompt.size(), 0);
    output.back() = 1;
    for (int32_t first = 0; first < n_prompt; first += n_batch_) {
        const int32_t n     = std::min(n_batch_, n_prompt - first);
        const auto    start = Clock::now();
        if (const auto why = decode(request, request.prompt.data() + first, n, output.data() + first)) {
            return why;
        }
        count_prefill(request, n, start);
    }
    return std::nullopt;
}

Engine::End Engine::fill_logits(Request & request) {
    const int32_t       n_prompt  = static_cast<int32_t>(request.prompt.size());
    const int32_t       n_rows    = std::min({LOGITS_ROWS, n_batch_, static_cast<int32_t>(context_->n_outputs_max)});
    const size_t        row_bytes = sizeof(float) * static_cast<size_t>(n_vocab_);
    std::vector<int8_t> output(static_cast<size_t>(n_rows), 1);
    for (int32_t first = 0; first < n_prompt; first += n_rows) {
        const int32_t n     = std::min(n_rows, n_prompt - first);
        const auto    start = Clock::now();
        if (const auto why = decode(request, request.prompt.data() + first, n, output.data())) {
            return {*why};
        }
        std::memcpy(request.logits + static_cast<ptrdiff_t>(first) * n_vocab_, llama_get_logits(context_->raw),
                    static_cast<size_t>(n) * row_bytes);
        count_prefill(request, n, start);
    }
    return {PYG_FINISH_LENGTH};
}

// One forward pass, finished when it returns.
std::optional<pyg_finish> Engine::decode(const Request & request, const int32_t * token_ids, int32_t n,
                                         int8_t * output) {
    if (const auto why = interruption(request)) {
        return why;
    }
    const int32_t result = llama_decode(context_->raw, batch_of(token_ids, n, output));
    if (result == DECODE_ABORTED) {
        return interruption(request).value_or(PYG_FINISH_CANCELLED);
    }
    if (result != 0) {
        throw fail(PYG_ERR_ENGINE, "the engine could not decode (status %d): %s", result, engine_words().c_str());
    }
    llama_synchronize(context_->raw);
    return std::nullopt;
}

void Engine::publish(Request & request, int32_t token_id) {
    request.publish(token_id);
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.n_generated_tokens++;
}

void Engine::count_prefill(Request & request, int32_t n, Clock::time_point start) {
    request.prefilled(n);
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.n_decode_steps++;
    stats_.n_prompt_tokens += static_cast<uint64_t>(n);
    stats_.prefill_s += seconds_since(start);
}

void Engine::count_decode(Clock::time_point start) {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.n_decode_steps++;
    stats_.decode_s += seconds_since(start);
}

// Each request starts from an empty memory: the cells are marked free, their data is left as it is.
void Engine::forget() { llama_memory_clear(llama_get_memory(context_->raw), false); }

std::optional<pyg_finish> Engine::interruption(const Request & request) const {
    if (closing_.load(std::memory_order_relaxed)) {
        return PYG_FINISH_CLOSED;
    }
    return request.interruption();
}

// Asked by ggml between the nodes of a graph, on one of the compute threads, while `running_` cannot change.
bool Engine::should_abort(void * self) {
    const auto * engine = static_cast<Engine *>(self);
    return engine->interruption(*engine->running_).has_value();
}

}  // namespace pyg

struct pyg_engine : pyg::Handle {
    std::unique_ptr<pyg::Engine> engine;

    pyg_engine() : Handle(PYG_HANDLE_ENGINE) {}
    void release() { engine.reset(); }
    void leak() { (void) engine.release(); }
};

pyg_status pyg_engine_new(pyg_context * ctx, uint32_t n_ctx, pyg_engine ** out, pyg_error * err) {
    return pyg::with(ctx, err, [&](pyg_context & handle) {
        require_generative(*handle.context);
        // What one sequence can use, and the model has positions for.
        const uint32_t all = std::min(llama_n_ctx_seq(handle.context->raw),
                                      static_cast<uint32_t>(pyg::n_positions(*handle.context->model)));
        if (n_ctx > all) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "n_ctx is %u, and this context and model have room for %u", n_ctx,
                       all);
        }
        auto engine    = std::make_unique<pyg_engine>();
        engine->engine = std::make_unique<pyg::Engine>(handle.context, n_ctx ? n_ctx : all);
        handle.context.reset();
        handle.closed = true;
        *out          = engine.release();
    });
}

pyg_status pyg_engine_close(pyg_engine * engine, pyg_error * err) { return pyg::close(engine, err); }

void pyg_engine_free(pyg_engine * engine) { pyg::free_handle(engine); }

namespace {

// Making a request can take long (a grammar is compiled), so it is done between two short turns on the engine.
template <class... Options>
pyg_request * submit(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt, Options &&... options) {
    const auto [model, n_ctx] = pyg::take_turn(
        engine, [](pyg_engine & handle) { return std::pair(handle.engine->model(), handle.engine->n_ctx()); });
    const auto request = std::make_shared<Request>(*model, n_ctx, prompt, n_prompt, options...);
    auto       result  = std::make_unique<pyg_request>(request);
    pyg::take_turn(engine, [&](pyg_engine & handle) { handle.engine->submit(request); });
    return result.release();
}

}  // namespace

pyg_status pyg_engine_submit(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt,
                             const pyg_request_options * options, pyg_request ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = submit(engine, prompt, n_prompt, *options); });
}

pyg_status pyg_engine_submit_logits(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt, float * dst,
                                    pyg_request ** out, pyg_error * err) {
    return pyg::guard(err, [&] { *out = submit(engine, prompt, n_prompt, dst); });
}

pyg_status pyg_engine_reset(pyg_engine * engine, pyg_error * err) {
    return pyg::with(engine, err, [&](pyg_engine & handle) { handle.engine->reset(); });
}

pyg_status pyg_engine_get_stats(pyg_engine * engine, pyg_engine_stats * out, pyg_error * err) {
    return pyg::with(engine, err, [&](pyg_engine & handle) { *out = handle.engine->stats(); });
}
