// One step of the engine: forward pass, sampling, publishing.
#include "boundary/log.hpp"
#include "engine/engine.hpp"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace {

// Target durations of a step with prefill chunks: while streamed requests decode, while none does, and when all
// requests prefer throughput. On devices, chunks of fewer than MIN_PREFILL_TOKENS cost more than they save; on the CPU,
// where each token of a long prompt takes milliseconds, those of fewer than MIN_CHUNK.
constexpr double   PREFILL_WITH_DECODE_S    = 0.1;
constexpr double   PREFILL_WITHOUT_DECODE_S = 0.5;
constexpr double   PREFILL_THROUGHPUT_S     = 2.0;
constexpr double   PREFILL_ON_DEVICE_S      = 0.25;  // limit, but at least one micro-batch
constexpr uint32_t MIN_PREFILL_TOKENS       = 64;
constexpr uint32_t MIN_CHUNK                = 16;

// CPU time of this thread so far.
double processor_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

namespace pyg {

// Return how many prompt tokens can be prefilled in about `seconds`. Before the first measurement: few if the step
// could not be interrupted.
uint32_t Engine::prefill_tokens(double seconds) const {
    const uint32_t n_ubatch = llama_n_ubatch(context_->raw);
    if (s_per_prompt_token_ == 0) {
        return device_use_.any_on_device ? std::min(MIN_PREFILL_TOKENS, n_ubatch) : n_ubatch;
    }
    const double   n     = std::min(seconds / s_per_prompt_token_, 1e6);
    const uint32_t least = device_use_.any_on_device ? MIN_PREFILL_TOKENS : MIN_CHUNK;
    return std::max(static_cast<uint32_t>(n), std::min(least, n_ubatch));
}

// Return how many prompt tokens a step may prefill. There is a limit even without streams, because a cancel may have to
// wait for the step to end: the CPU checks for it between two nodes of the graph, but only if most of the step belongs
// to that request; a device only at the end of the step. The limit is higher when all requests prefer throughput:
// prefilling waiting prompts together is faster, and requests that start together keep the batches full to their end. A
// single sequence without a prefix cache must not depend on timing on any device.
Scheduler::PrefillBudget Engine::prefill_budget() const {
    if (only_decode_) {
        return {0, 0, 0};
    }
    const uint32_t n_ubatch  = llama_n_ubatch(context_->raw);
    const bool     in_one_go = device_use_.any_on_device && !device_use_.pipelined;
    if (is_reproducible_) {
        const uint32_t most = in_one_go ? n_ubatch : UINT32_MAX;
        return {std::min(prefill_tokens(PREFILL_WITH_DECODE_S), n_ubatch), most, most};
    }
    const uint32_t most      = in_one_go ? std::max(prefill_tokens(PREFILL_ON_DEVICE_S), n_ubatch) : UINT32_MAX;
    const auto     tokens_in = [&](double seconds) { return std::min(prefill_tokens(seconds), most); };
    return {std::min(prefill_tokens(PREFILL_WITH_DECODE_S), n_ubatch), tokens_in(PREFILL_WITHOUT_DECODE_S),
            tokens_in(PREFILL_THROUGHPUT_S)};
}

// Run one forward pass and wait for its end.
Engine::StepResult Engine::compute(const Step & step) {
    const llama_batch batch = batch_of(step);
    interruptible_          = interruptible_request(step);
    apply_thread_tuning(step.n_tokens);
    device_sampler_.prepare(need_of(step));
    adapters_.begin(step);
    LogBuffer     log;
    const auto    start     = Clock::now();
    const double  own_start = tuner_ ? processor_seconds() : 0;
    const int32_t status    = pyg::compute(*context_, batch, llama_decode);
    adapters_.end();
    const double seconds = seconds_since(start);
    compute_s_           = seconds;
    interrupted_before_  = status == ABORTED;
    remove_fillers();
    if (tuner_ && status == COMPUTED) {
        // A thread that waits for a device uses no CPU time, but does not lack a core.
        const double own = device_use_.any_on_device ? seconds : processor_seconds() - own_start;
        tuner_->measured(step.n_tokens, seconds, own);
    } else if (tuner_) {
        tuner_->abandoned();
    }
    switch (status) {
    case COMPUTED:
        break;
    case ABORTED:
        log.drop();  // upstream logs an abort as an error, but it was requested
        return StepResult::INTERRUPTED;
    case NO_CELLS:
        return StepResult::NO_CELLS;
    case NO_MEMORY:
        if (device_sampler_.is_on()) {
            device_sampler_.disable();
            return StepResult::INTERRUPTED;
        }
        throw compute_error(status);
    default:
        throw compute_error(status);
    }
    update_stats(step, seconds);
    scheduler_.commit(step);
    return StepResult::COMPUTED;
}

void Engine::apply_thread_tuning(uint32_t n_tokens) {
    if (!tuner_) {
        return;
    }
    const int32_t n = tuner_->threads(n_tokens);
    if (n == n_threads_) {
        return;
    }
    try {
        context_->set_threads(n, n);
        n_threads_ = n;
    } catch (const std::system_error &) {
        stop_tuning();
    }
}

// Stop tuning when no more threads can be started, and keep the current ones.
void Engine::stop_tuning() {
    tuner_.reset();
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.n_threads       = llama_n_threads(context_->raw);
    stats_.n_threads_batch = llama_n_threads_batch(context_->raw);
}

// Return the request whose cancellation should abort the step, because most of the step's tokens are its own. The other
// requests repeat their tokens in the next step, which requires a KV cache that can be rewound.
const Request * Engine::interruptible_request(const Step & step) const {
    const auto largest = std::max_element(step.slices.begin(), step.slices.end(), [](const Slice & a, const Slice & b) {
        return a.n_columns() < b.n_columns();
    });
    const bool alone   = step.slices.size() == 1;
    const bool for_it  = 2 * largest->n_columns() > step.n_tokens;
    const bool no_regret = cache_.rewinds() && !interrupted_before_;
    return for_it && (alone || no_regret) ? &request_of(largest->task) : nullptr;
}

// Abort callback of ggml, called between the nodes of a graph on a compute thread.
bool Engine::should_abort(void * self) {
    const auto * engine = static_cast<Engine *>(self);
    return engine->closing_.load(std::memory_order_relaxed) ||
           (engine->interruptible_ && engine->interruptible_->interruption(Clock::now()));
}

void Engine::update_stats(const Step & step, double seconds) {
    uint32_t n_prompt = 0;
    for (const Slice & slice : step.slices) {
        Request & request = request_of(slice.task);
        if (request.in_prefill()) {
            request.prefilled(slice.n);
            n_prompt += slice.n;
        }
    }
    if (n_prompt >= (device_use_.any_on_device ? MIN_PREFILL_TOKENS : MIN_CHUNK) / 2) {
        const double measured = seconds / step.n_tokens;
        s_per_prompt_token_   = s_per_prompt_token_ == 0 ? measured : (s_per_prompt_token_ + measured) / 2;
    }
    if (n_prompt == 0) {
        column_costs_.measured(step.n_tokens, seconds);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (tuner_) {
        stats_.n_threads       = tuner_->n_threads();
        stats_.n_threads_batch = tuner_->n_threads_batch();
    }
    stats_.n_decode_steps++;
    stats_.n_prompt_tokens += n_prompt;
    (n_prompt > 0 ? stats_.prefill_s : stats_.decode_s) += seconds;
}

// Sample a token for each request that is due, and end finished requests. A failure ends only the request it belongs
// to.
void Engine::sample_and_publish(const Step & step) {
    const auto start = Clock::now();
    ended_.clear();
    collect_samples(step);
    sample_all();
    const uint64_t n_generated = publish_all();
    learn_from_samples(step);
    std::lock_guard<std::mutex> lock(mutex_);
    settle_guesses(step);
    stats_.n_generated_tokens += n_generated;
    stats_.n_sampled_on_device = device_sampler_.n_sampled();
    stats_.schedule_s += seconds_between(step_started_, start) - compute_s_;
    stats_.sample_s += seconds_since(start);
    count_saved_states();
    decode_again(step);
    for (const auto & [request, how] : ended_) {
        end(*request, how);
    }
    shift_contexts(step);
    notify_capacity_waiters();
}

// Shift the context of requests that have filled it and go on. Their last tokens are computed again at their new
// positions rather than moved, which would leave values of the tokens before them: the request continues with the bits
// of a prompt of the tokens that stay, and what it leaves in the prefix cache fits any other request. Where other
// engines move cells, this costs about one prefilled token for each generated one.
void Engine::shift_contexts(const Step & step) {
    for (const Slice & slice : step.slices) {
        Request & request = request_of(slice.task);
        if (request.is_running() && request.n_tokens() > n_ctx_) {
            scheduler_.drop_tokens(slice.task, request.n_keep, (request.n_tokens() - request.n_keep + 1) / 2);
            if (request.speculator()) {
                request.speculator()->restart();
            }
        }
    }
}

// Collect the requests whose next token is due, and publish the logits of others.
void Engine::collect_samples(const Step & step) {
    samples_.clear();
    for (size_t i = 0; i < step.slices.size(); i++) {
        const Slice & slice   = step.slices[i];
        Request &     request = request_of(slice.task);
        if (request.needs_all_logits) {
            run_guarded(request, [&] { return publish_logits(request, slice); });
        }
        const bool has_ended = !ended_.empty() && ended_.back().first == &request;
        if (has_ended || !slice.reaches_end()) {
            continue;
        }
        if (request.saves_prefix) {
            run_guarded(request, [&] {
                save_prefix(request);
                return std::optional<End>(End{PYG_FINISH_LENGTH});
            });
        } else if (request.is_full()) {
            ended_.emplace_back(&request, End{PYG_FINISH_LENGTH});  // max_tokens is 0
        } else {
            samples_.push_back({&request, rows_[i]});
        }
    }
}

// Run `body`, which returns how the request ends, if it does, and note that. An exception ends the request, too; a
// failed assert, after which the state of the context is unknown, ends the step.
template <class Body>
void Engine::run_guarded(Request & request, Body && body) {
    std::optional<End> how;
    pyg_error          error;
    std::exception_ptr aborted;
    const pyg_status   status = guard(&error, [&] {
        try {
            how = body();
        } catch (const EngineAbort &) {
            aborted = std::current_exception();
        }
    });
    if (aborted) {
        std::rethrow_exception(aborted);
    }
    if (status != PYG_OK) {
        request.set_error(error);
        how = End{PYG_FINISH_ERROR};
    }
    if (how) {
        ended_.emplace_back(&request, *how);
    }
}

// Publish the sampled tokens. Return how many there are without stop tokens.
uint64_t Engine::publish_all() {
    const auto now         = Clock::now();
    uint64_t   n_generated = 0;
    for (const Sample & sample : samples_) {
        if (!sample.is_sampled()) {
            continue;
        }
        const size_t n_before = sample.request->tokens.size();
        run_guarded(*sample.request, [&] { return publish(sample, now); });
        n_generated += sample.request->tokens.size() - n_before;
    }
    return n_generated;
}

// Publish the guesses that were right, and the token that was sampled after them. Return how the request ends, if it
// does.
std::optional<Engine::End> Engine::publish(const Sample & sample, Clock::time_point now) {
    Request & request = *sample.request;
    for (size_t i = 0; i < sample.n_right; i++) {
        if (const auto how = publish(request, request.guesses[i], now)) {
            return how;
        }
    }
    return sample.failed ? End{PYG_FINISH_ERROR} : publish(request, sample.token_id, now);
}

std::optional<Engine::End> Engine::publish(Request & request, int32_t token_id, Clock::time_point now) {
    if (request.is_stop(token_id)) {
        return End{PYG_FINISH_STOP, token_id};
    }
    const bool no_cell_left = request.n_tokens() == n_ctx_;
    request.tokens.push_back(token_id);
    request.publish(token_id, now);
    if (request.is_full() || (no_cell_left && !request.shifts)) {
        return End{PYG_FINISH_LENGTH};
    }
    return request.repeats_itself() ? std::optional<End>(End{PYG_FINISH_REPETITION}) : std::nullopt;
}

// Publish the logits rows of a prefill chunk: the logits themselves, or the prompt's logprobs, after which the request
// continues like any other.
std::optional<Engine::End> Engine::publish_logits(Request & request, const Slice & slice) {
    const auto    n_vocab = static_cast<size_t>(n_vocab_);
    const float * rows    = llama_get_logits(context_->raw);
    if (request.logits) {
        std::memcpy(request.logits + slice.first * n_vocab, rows, slice.n * n_vocab * sizeof(float));
        return request.n_pending() == 0 ? std::optional<End>(End{PYG_FINISH_LENGTH}) : std::nullopt;
    }
    request.record_prompt_logprobs(rows, n_vocab_, slice.first, slice.n);
    request.needs_all_logits = request.n_pending() > 0;
    return std::nullopt;
}

}  // namespace pyg
