#include "request.hpp"

#include "grammar.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

using pyg::fail;

void require_finite(const char * name, double value) {
    if (!std::isfinite(value)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be a finite number, not %f", name, value);
    }
}

void require_range(const char * name, double value, double low, double high) {
    if (!(value >= low && value <= high)) {  // also refuses NaN
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be between %g and %g, not %g", name, low, high, value);
    }
}

void require_not_negative(const char * name, int64_t value) {
    if (value < 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "%s must be 0 or more, not %lld", name, static_cast<long long>(value));
    }
}

void require_valid(const pyg_sampling & options) {
    require_finite("temperature", options.temperature);
    require_range("temperature", options.temperature, 0, std::numeric_limits<float>::max());
    require_not_negative("top_k", options.top_k);
    require_range("top_p", options.top_p, 0, 1);
    require_range("min_p", options.min_p, 0, 1);
    require_range("typical_p", options.typical_p, 0, 1);
    require_finite("repeat_penalty", options.repeat_penalty);
    if (!(options.repeat_penalty > 0)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "repeat_penalty must be above 0, not %g", options.repeat_penalty);
    }
    require_finite("frequency_penalty", options.frequency_penalty);
    require_finite("presence_penalty", options.presence_penalty);
    require_not_negative("penalty_last_n", options.penalty_last_n);
}

bool has_penalties(const pyg_sampling & options) {
    return options.penalty_last_n != 0 &&
           (options.repeat_penalty != 1.0f || options.frequency_penalty != 0.0f || options.presence_penalty != 0.0f);
}

bool suppresses_tokens(const llama_vocab * vocab) {
    int32_t n = 0;
    llama_vocab_get_suppress_tokens(vocab, &n);
    return n > 0;
}

common_params_sampling upstream_params(const pyg::Model & model, uint32_t n_ctx, const pyg_sampling & options) {
    common_params_sampling params;
    params.no_perf = true;
    params.seed    = options.seed;
    params.temp    = options.temperature;
    params.top_k   = options.top_k;
    params.top_p   = options.top_p;
    params.min_p   = options.min_p;
    params.typ_p   = options.typical_p;
    // Upstream makes a ring of this length, however few tokens there will be.
    params.penalty_last_n =
        has_penalties(options) ? static_cast<int32_t>(std::min<int64_t>(options.penalty_last_n, n_ctx)) : 0;
    params.penalty_repeat  = options.repeat_penalty;
    params.penalty_freq    = options.frequency_penalty;
    params.penalty_present = options.presence_penalty;
    for (int32_t i = 0; i < options.n_bias; i++) {
        model.require_token(options.bias_token_ids[i], i);
        const float bias = options.bias_values[i];
        if (std::isnan(bias) || bias == INFINITY) {
            throw fail(PYG_ERR_INVALID_PARAMETER, "the logit bias of token %d is %f; it must be a number or -inf",
                       options.bias_token_ids[i], bias);
        }
        params.logit_bias.push_back({options.bias_token_ids[i], options.bias_values[i]});
    }
    if (options.grammar) {
        pyg::require_grammar(model.vocab, options.grammar, "root");
        params.grammar = common_grammar(COMMON_GRAMMAR_TYPE_USER, options.grammar);
    }
    return params;
}

std::vector<int32_t> checked_prompt(const pyg::Model & model, uint32_t n_ctx, const int32_t * prompt,
                                    int32_t n_prompt) {
    if (n_prompt <= 0) {
        throw fail(PYG_ERR_EMPTY_PROMPT, "the prompt has no tokens; give at least one");
    }
    if (static_cast<uint32_t>(n_prompt) > n_ctx) {
        throw fail(PYG_ERR_CONTEXT_OVERFLOW,
                   "the prompt has %d tokens and the context holds %u: shorten the prompt or load with a larger n_ctx",
                   n_prompt, n_ctx);
    }
    for (int32_t i = 0; i < n_prompt; i++) {
        model.require_token(prompt[i], i);
    }
    return {prompt, prompt + n_prompt};
}

std::optional<pyg::Clock::time_point> deadline_after(double timeout_s) {
    if (std::isnan(timeout_s)) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "timeout_s must be a number of seconds, not NaN");
    }
    constexpr double LONG_S = 1e9;  // beyond this a deadline means nothing, and the clock's arithmetic overflows
    if (timeout_s < 0 || timeout_s > LONG_S) {
        return std::nullopt;
    }
    return pyg::Clock::now() +
           std::chrono::duration_cast<pyg::Clock::duration>(std::chrono::duration<double>(timeout_s));
}

// The largest of `n` floats, NaNs aside. Sixteen running maxima, since the compiler may not reorder a single one.
float maximum(const float * values, int32_t n) {
    constexpr int32_t LANES = 16;
    float             lanes[LANES];
    std::fill_n(lanes, LANES, -std::numeric_limits<float>::infinity());
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int32_t lane = 0; lane < LANES; lane++) {
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
        }
    }
    for (; i < n; i++) {
        lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
    }
    return *std::max_element(lanes, lanes + LANES);
}

// The first index of the largest value. Runs for every token of a greedy generation, so the vocabulary is walked
// in blocks and only the winning block is searched for the place.
int32_t argmax(const float * row, int32_t n) {
    constexpr int32_t BLOCK = 512;
    float             best  = -std::numeric_limits<float>::infinity();
    int32_t           where = -1;
    for (int32_t first = 0; first < n; first += BLOCK) {
        const float block_best = maximum(row + first, std::min(BLOCK, n - first));
        if (block_best > best) {
            best  = block_best;
            where = first;
        }
    }
    if (where < 0) {
        throw fail(PYG_ERR_ENGINE, "the model produced logits that are no numbers: the weights are damaged");
    }
    return static_cast<int32_t>(std::find(row + where, row + n, best) - row);
}

// Upstream's samplers sort and exponentiate what they are given, and neither bears these.
void require_usable(const float * row, int32_t n) {
    if (!std::all_of(row, row + n, [](float logit) { return logit < INFINITY; })) {
        throw fail(PYG_ERR_ENGINE, "the model produced logits that are no numbers: the weights are damaged");
    }
}

double seconds(pyg::Clock::time_point from, pyg::Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

}  // namespace

namespace pyg {

TokenSampler::TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options)
    : has_grammar_(options.grammar) {
    require_valid(options);
    const bool plain_greedy = options.temperature == 0.0f && options.n_bias == 0 && !options.grammar &&
                              !has_penalties(options) && !suppresses_tokens(model.vocab);
    if (plain_greedy) {
        return;
    }
    common_params_sampling params = upstream_params(model, n_ctx, options);
    try {
        sampler_.reset(common_sampler_init(model.raw, params));
    } catch (const std::exception & e) {
        const std::string words = engine_words();
        throw fail(options.grammar ? PYG_ERR_GRAMMAR : PYG_ERR_INVALID_PARAMETER, "%s%s%s", e.what(),
                   words.empty() ? "" : ": ", words.c_str());
    }
}

int32_t TokenSampler::sample(llama_context * context, int32_t n_vocab, int32_t index) {
    const float * row = llama_get_logits_ith(context, index);
    if (!sampler_) {
        return argmax(row, n_vocab);
    }
    require_usable(row, n_vocab);
    try {
        return choose(context, index);
    } catch (const EngineAbort & abort) {
        // The sampler is in an unknown state and is leaked; the context was only read.
        (void) sampler_.release();
        throw fail(PYG_ERR_ENGINE, "a check inside the sampler failed: %s", abort.message.c_str());
    }
}

int32_t TokenSampler::choose(llama_context * context, int32_t index) {
    const int32_t                  token_id   = common_sampler_sample(sampler_.get(), context, index);
    const llama_token_data_array * candidates = common_sampler_get_candidates(sampler_.get(), false);
    const llama_token_data &       chosen     = candidates->data[candidates->selected];
    if (!std::isfinite(chosen.logit) || std::isnan(chosen.p)) {
        throw fail(has_grammar_ ? PYG_ERR_GRAMMAR : PYG_ERR_INVALID_PARAMETER,
                   "grammar, logit_bias, penalties and temperature together leave no token to choose");
    }
    common_sampler_accept(sampler_.get(), token_id, true);
    return token_id;
}

void TokenSampler::accept_prompt(const std::vector<int32_t> & prompt) {
    for (size_t i = 0; sampler_ && i < prompt.size(); i++) {
        common_sampler_accept(sampler_.get(), prompt[i], false);
    }
}

Request::Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
                 const pyg_request_options & options)
    : prompt(checked_prompt(model, n_ctx, prompt, n_prompt)), max_tokens(options.max_tokens), logits(nullptr),
      sampler_(std::in_place, model, n_ctx, options.sampling),
      stop_token_ids_(options.stop_token_ids, options.stop_token_ids + options.n_stop), submitted_(Clock::now()),
      deadline_(deadline_after(options.timeout_s)) {
    require_not_negative("max_tokens", max_tokens);
    for (int32_t i = 0; i < options.n_stop; i++) {
        model.require_token(options.stop_token_ids[i], i);
    }
    std::sort(stop_token_ids_.begin(), stop_token_ids_.end());
    sampler_->accept_prompt(this->prompt);
}

Request::Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt, float * logits)
    : prompt(checked_prompt(model, n_ctx, prompt, n_prompt)), max_tokens(0), logits(logits), submitted_(Clock::now()) {}

bool Request::start() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ != Phase::WAITING) {
        return false;
    }
    phase_   = Phase::RUNNING;
    started_ = Clock::now();
    return true;
}

void Request::prefilled(int32_t n_tokens) {
    std::lock_guard<std::mutex> lock(mutex_);
    n_prefilled_ += n_tokens;
}

void Request::publish(int32_t token_id) {
    const auto now = Clock::now();
    bool       wake;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (generated_.empty()) {
            first_token_ = now;
        }
        last_token_ = now;
        generated_.push_back(token_id);
        wake = generated_.size() == n_wanted_;
    }
    if (wake) {
        news_.notify_all();
    }
}

void Request::end(pyg_finish finish, int32_t stop_token_id) {
    std::lock_guard<std::mutex> lock(mutex_);
    end_locked(finish, stop_token_id);
}

void Request::end(const pyg_error & error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ != Phase::ENDED) {
        error_ = error;
        end_locked(PYG_FINISH_ERROR, -1);
    }
}

void Request::end_locked(pyg_finish finish, int32_t stop_token_id) {
    if (phase_ == Phase::ENDED) {
        return;
    }
    if (phase_ == Phase::WAITING) {
        started_ = Clock::now();
    }
    if (generated_.empty()) {
        first_token_ = last_token_ = Clock::now();
    }
    phase_         = Phase::ENDED;
    finish_        = finish;
    stop_token_id_ = stop_token_id;
    news_.notify_all();
}

std::optional<pyg_finish> Request::interruption() const {
    if (cancelled_.load(std::memory_order_relaxed)) {
        return PYG_FINISH_CANCELLED;
    }
    if (past_deadline()) {
        return PYG_FINISH_TIMEOUT;
    }
    return std::nullopt;
}

bool Request::is_stop(int32_t token_id) const {
    return std::binary_search(stop_token_ids_.begin(), stop_token_ids_.end(), token_id);
}

bool Request::is_waiting() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return phase_ == Phase::WAITING;
}

void Request::await_end() {
    std::unique_lock<std::mutex> lock(mutex_);
    news_.wait(lock, [&] { return phase_ == Phase::ENDED; });
}

void Request::cancel() {
    cancelled_.store(true, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ == Phase::WAITING) {
        end_locked(PYG_FINISH_CANCELLED, -1);
    }
}

pyg_status Request::wait(int32_t min_tokens, double timeout_s, int32_t * token_ids, int32_t max_tokens, int32_t * n_out,
                         pyg_request_state * state, pyg_error * err) {
    clear(err);
    const auto                   give_up = deadline_after(timeout_s);
    std::unique_lock<std::mutex> lock(mutex_);
    n_wanted_ = n_read_ + static_cast<size_t>(std::max(min_tokens, 1));

    const auto ready = [&] { return phase_ == Phase::ENDED || generated_.size() >= n_wanted_; };
    while (!ready()) {
        // A queued request must not outstay its deadline because the engine is busy with another one.
        const bool own_deadline = phase_ == Phase::WAITING && deadline_ && (!give_up || *deadline_ < *give_up);
        const auto until        = own_deadline ? deadline_ : give_up;
        if (!until) {
            news_.wait(lock, ready);
        } else if (!news_.wait_until(lock, *until, ready)) {
            if (!own_deadline) {
                break;
            }
            if (phase_ == Phase::WAITING) {
                end_locked(PYG_FINISH_TIMEOUT, -1);
            }
        }
    }

    const size_t n = std::min(generated_.size() - n_read_, static_cast<size_t>(std::max(max_tokens, 0)));
    std::copy_n(generated_.begin() + static_cast<std::ptrdiff_t>(n_read_), n, token_ids);
    n_read_ += n;
    *n_out = static_cast<int32_t>(n);
    *state = state_locked();
    if (state->finish == PYG_FINISH_ERROR) {
        *err = error_;
        return error_.code;
    }
    return PYG_OK;
}

pyg_request_state Request::state_locked() const {
    const auto now         = Clock::now();
    const bool has_started = phase_ != Phase::WAITING;
    const bool has_tokens  = phase_ == Phase::ENDED || !generated_.empty();

    pyg_request_state state = {};
    state.finish            = phase_ == Phase::ENDED && n_read_ == generated_.size() ? finish_ : PYG_FINISH_NONE;
    state.stop_token_id     = stop_token_id_;
    state.n_prompt          = static_cast<int32_t>(prompt.size());
    state.n_prefilled       = n_prefilled_;
    state.n_generated       = static_cast<int32_t>(generated_.size());
    state.n_read            = static_cast<int32_t>(n_read_);
    state.queue_s           = seconds(submitted_, has_started ? started_ : now);
    state.prefill_s         = has_started ? seconds(started_, has_tokens ? first_token_ : now) : 0;
    state.decode_s          = has_tokens ? seconds(first_token_, last_token_) : 0;
    return state;
}

}  // namespace pyg

pyg_status pyg_request_wait(pyg_request * request, int32_t min_tokens, double timeout_s, int32_t * token_ids,
                            int32_t max_tokens, int32_t * n_out, pyg_request_state * state, pyg_error * err) {
    // Not pyg::with: that would hold the handle's lock while waiting, and cancel must get through.
    pyg_status       status = PYG_OK;
    const pyg_status outer  = pyg::guard(err, [&] {
        if (!request) {
            throw fail(PYG_ERR_CLOSED, "the object has been closed");
        }
        request->require_same_process();
        status = request->request->wait(min_tokens, timeout_s, token_ids, max_tokens, n_out, state, err);
    });
    return outer != PYG_OK ? outer : status;
}

void pyg_request_cancel(pyg_request * request) {
    if (request && !request->inherited()) {
        request->request->cancel();
    }
}

void pyg_request_free(pyg_request * request) { pyg::free_handle(request); }
