#include "engine/request.hpp"

#include "adapters/hash.hpp"
#include "engine/proposers/forced_text.hpp"
#include "engine/proposers/prompt_lookup.hpp"
#include "engine/repetition.hpp"
#include "engine/speculation/guess_counts.hpp"

#include <algorithm>

namespace {

using pyg::fail;

std::vector<int32_t> checked_prompt(const pyg::Model & model, uint32_t n_ctx, const int32_t * prompt,
                                    int32_t n_prompt) {
    if (n_prompt <= 0) {
        throw fail(PYG_ERR_EMPTY_PROMPT, "the prompt has no tokens; give at least one");
    }
    if (static_cast<uint32_t>(n_prompt) > n_ctx) {
        throw fail(
            PYG_ERR_CONTEXT_OVERFLOW,
            "the prompt has %d tokens, but the context holds only %u: shorten the prompt or load with a larger n_ctx",
            n_prompt, n_ctx);
    }
    for (int32_t i = 0; i < n_prompt; i++) {
        model.require_token(prompt[i], i);
    }
    return {prompt, prompt + n_prompt};
}

// Return how many of the first tokens stay when the context shifts. Each shift has to free a good part of the context,
// since it computes the tokens that stay again.
uint32_t checked_n_keep(uint32_t n_ctx, int32_t n_prompt, const pyg_request_options & options) {
    if (!options.shifts) {
        return 0;
    }
    if (options.max_tokens < 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "overflow=\"shift\" would never end with max_tokens=-1: set max_tokens");
    }
    if (options.n_keep < -1) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "n_keep must be 0 or more, or -1 for the whole prompt, not %d",
                   options.n_keep);
    }
    const int32_t n_keep = options.n_keep < 0 ? n_prompt : std::min(options.n_keep, n_prompt);
    if (static_cast<uint32_t>(n_keep) > n_ctx / 2) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "n_keep=%d keeps %d tokens, more than half of a context of %u: use n_keep=%u or less, or load with "
                   "a larger n_ctx",
                   options.n_keep, n_keep, n_ctx, n_ctx / 2);
    }
    return static_cast<uint32_t>(n_keep);
}

}  // namespace

namespace pyg {

Request::Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
                 const pyg_request_options & options)
    : adapters(adapters_of_request(model, options.adapters, options.n_adapters)),
      n_prompt(static_cast<uint32_t>(n_prompt)), max_tokens(options.max_tokens), shifts(options.shifts),
      n_keep(checked_n_keep(n_ctx, n_prompt, options)), logits(nullptr), saves_prefix(options.save_prefix),
      stop_token_ids_(options.stop_token_ids, options.stop_token_ids + options.n_stop),
      repetition_guard_(options.repetition_guard), submitted_(Clock::now()),
      deadline_(deadline_after(options.timeout_s)), waker_(options.waker ? shared_object(options.waker) : nullptr),
      tag_(options.tag), has_processed_logprobs_(options.processed_logprobs),
      logprobs_("logprobs", options.n_logprobs, model.n_vocab()),
      prompt_logprobs_("prompt_logprobs", options.n_prompt_logprobs, model.n_vocab()) {
    tokens            = checked_prompt(model, n_ctx, prompt, n_prompt);
    needs_all_logits  = prompt_logprobs_.wanted();
    prefer_throughput = options.prefer_throughput;
    cache_salt        = salted(options.cache_salt, adapters.get());
    if (max_tokens < -1) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "max_tokens must be 0 or more, or -1 for no limit, not %d", max_tokens);
    }
    if (saves_prefix && (max_tokens != 0 || prompt_logprobs_.wanted())) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "a request that saves its prefix needs max_tokens=0 and prompt_logprobs=0");
    }
    if (saves_prefix && options.n_adapters > 0) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "a request that saves its prefix must have no adapters: saved cells do not tell which ones they "
                   "were computed with");
    }
    for (int32_t i = 0; i < options.n_stop; i++) {
        model.require_token(options.stop_token_ids[i], i);
    }
    std::sort(stop_token_ids_.begin(), stop_token_ids_.end());
    sampler_.emplace(model, n_ctx, options.sampling, stop_token_ids_);
    sampler_->accept_prompt(tokens);
    if (options.sampling.grammar) {
        ContentHash hash;
        hash.add(std::string(options.sampling.grammar));
        hash.add(cache_salt);
        format_ = hash.value();
    }
    if (options.logits_callback) {
        processor_ = LogitsProcessor{options.logits_callback, options.processor,
                                     std::vector<float>(static_cast<size_t>(model.n_vocab()))};
    }
}

Request::Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
                 const pyg_scaled_adapter * adapters, int32_t n_adapters, float * logits)
    : adapters(adapters_of_request(model, adapters, n_adapters)), n_prompt(static_cast<uint32_t>(n_prompt)),
      max_tokens(0), shifts(false), n_keep(0), logits(logits), saves_prefix(false), submitted_(Clock::now()) {
    tokens           = checked_prompt(model, n_ctx, prompt, n_prompt);
    cache_salt       = salted(0, this->adapters.get());  // its cells stay cached
    needs_all_logits = true;
}

// Called in each step. A running request is ended, and these numbers are changed, by this thread only: no lock needed.
bool Request::start() {
    if (has_started_ && n_preemptions_seen_ == n_preemptions) {
        return true;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    n_cached_seen_      = n_cached;
    n_preemptions_seen_ = n_preemptions;
    if (phase_ == Phase::WAITING) {
        phase_   = Phase::RUNNING;
        started_ = Clock::now();
    }
    has_started_ = phase_ == Phase::RUNNING;
    return has_started_;
}

void Request::prefilled(uint32_t n_tokens) {
    std::lock_guard<std::mutex> lock(mutex_);
    n_prefilled_ += n_tokens;
}

void Request::start_guessing(int32_t mode, size_t n_fixed, std::shared_ptr<DraftRecord> draft, FormatMemory & formats) {
    const auto is_wanted = [&](int32_t of_proposer) { return mode == PYG_SPECULATIVE_AUTO || mode == of_proposer; };
    if (max_tokens == 0 || max_tokens == 1 || !sampler_) {
        return;
    }
    speculator_.emplace(n_fixed);
    if (is_wanted(PYG_SPECULATIVE_FORCED) && sampler_->has_grammar()) {
        speculator_->add(FORCED_TEXT, std::make_unique<ForcedText>(*sampler_));
    }
    if (is_wanted(PYG_SPECULATIVE_LOOKUP)) {
        if (format_) {
            speculator_->add(PROMPT_LOOKUP, std::make_unique<FormatLookup>(formats.of(format_), tokens));
        }
        speculator_->add(PROMPT_LOOKUP, std::make_unique<PromptLookup>(tokens));
    }
    if (is_wanted(PYG_SPECULATIVE_DRAFT) && draft) {
        speculator_->add(DRAFT_MODEL, std::make_unique<DraftedTokens>(std::move(draft)));
    }
}

void Request::count_guesses(ProposerKind kind, uint32_t n_drafted, uint32_t n_accepted) {
    std::lock_guard<std::mutex> lock(mutex_);
    count(guess_counts_, kind, n_drafted, n_accepted);
}

void Request::record_logprobs(const float * row, int32_t n_vocab, int32_t token_id) {
    if (!processed_logprobs()) {
        logprobs_of(row, n_vocab, token_id, logprobs_.n_top(), scratch_logprobs_);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    logprobs_.append(scratch_logprobs_);
}

void Request::record_prompt_logprobs(const float * rows, int32_t n_vocab, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n && i + 1 < n_prompt; i++) {
        if (i < prompt_logprobs_.size()) {
            continue;  // recorded before a preemption
        }
        const size_t row = i - first;
        logprobs_of(rows + row * static_cast<size_t>(n_vocab), n_vocab, tokens[i + 1], prompt_logprobs_.n_top(),
                    scratch_logprobs_);
        std::lock_guard<std::mutex> lock(mutex_);
        prompt_logprobs_.append(scratch_logprobs_);
    }
}

void Request::publish(int32_t token_id, Clock::time_point now) {
    bool wake = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (generated_.empty()) {
            first_token_ = now;
        }
        last_token_ = now;
        generated_.push_back(token_id);
        if (generated_.size() == n_wanted_) {
            wake = true;
            wake_locked();
        }
    }
    if (wake) {
        changed_.notify_all();
    }
}

void Request::set_error(const pyg_error & error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ != Phase::ENDED) {
        error_ = error;
    }
}

void Request::end(pyg_finish finish, int32_t stop_token_id) {
    std::lock_guard<std::mutex> lock(mutex_);
    end_locked(finish, stop_token_id);
}

void Request::end(const pyg_error & error) {
    set_error(error);
    end(PYG_FINISH_ERROR);
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
    wake_locked();
    changed_.notify_all();
}

void Request::wake_locked() {
    if (armed_) {
        armed_ = false;
        waker_->wake(tag_);
    }
}

std::optional<pyg_finish> Request::interruption(Clock::time_point now) const {
    if (cancelled_.load(std::memory_order_relaxed)) {
        return PYG_FINISH_CANCELLED;
    }
    if (deadline_ && now >= *deadline_) {
        return PYG_FINISH_TIMEOUT;
    }
    return std::nullopt;
}

bool Request::is_stop(int32_t token_id) const {
    return std::binary_search(stop_token_ids_.begin(), stop_token_ids_.end(), token_id);
}

bool Request::repeats_itself() const {
    if (!repetition_guard_ || !is_repetition_due(n_generated())) {
        return false;
    }
    const uint32_t n_held = n_dropped == 0 ? n_generated() : std::min(n_generated(), n_tokens() - n_keep);
    return ends_in_repetition(tokens.data() + n_tokens() - n_held, n_held);
}

void Request::set_saved_prefix(StateBytes bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    saved_prefix_ = std::move(bytes);
}

const StateBytes & Request::saved_prefix() const {
    std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ != Phase::ENDED || saved_prefix_.empty()) {
        throw fail(PYG_ERR_INVALID_PARAMETER,
                   "this request has no saved prefix: submit it with save_prefix, and wait for "
                   "its end");
    }
    return saved_prefix_;
}

bool Request::has_ended() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return phase_ == Phase::ENDED;
}

void Request::await_end() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return phase_ == Phase::ENDED; });
}

void Request::become_mirror(std::function<void()> forward_cancel) {
    forward_cancel_ = std::move(forward_cancel);
    sampler_.reset();  // it has validated the options; sampling is done in the other process
}

void Request::mirror(const pyg_request_state & state, const std::vector<int32_t> & new_tokens, const LogprobRows & rows,
                     const LogprobRows & prompt_rows, const pyg_error * error) {
    const auto later = [](Clock::time_point from, double seconds) {
        return from + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ == Phase::ENDED) {
        return;
    }
    phase_              = Phase::RUNNING;
    n_cached_seen_      = static_cast<uint32_t>(state.n_cached);
    n_prefilled_        = static_cast<uint32_t>(state.n_prefilled);
    n_preemptions_seen_ = state.n_preemptions;
    guess_counts_       = state.guesses;
    started_            = later(submitted_, state.queue_s);
    first_token_        = later(started_, state.prefill_s);
    last_token_         = later(first_token_, state.decode_s);
    generated_.insert(generated_.end(), new_tokens.begin(), new_tokens.end());
    logprobs_.append(rows);
    prompt_logprobs_.append(prompt_rows);
    if (state.finish != PYG_FINISH_NONE) {
        phase_         = Phase::ENDED;
        finish_        = static_cast<pyg_finish>(state.finish);
        stop_token_id_ = state.stop_token_id;
        error_         = error ? *error : pyg_error{};
    }
    if (ready_locked()) {
        wake_locked();
        changed_.notify_all();
    }
}

void Request::cancel() {
    if (forward_cancel_) {
        if (!has_ended() && !cancelled_.exchange(true)) {
            forward_cancel_();
        }
        return;
    }
    cancelled_.store(true, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(mutex_);
    if (phase_ == Phase::WAITING) {
        end_locked(PYG_FINISH_CANCELLED, -1);
    }
}

pyg_status Request::wait(int32_t min_tokens, double timeout_s, int32_t * token_ids, int32_t max_tokens, int32_t * n_out,
                         pyg_request_state * state, pyg_error * err) {
    clear(err);
    if (timeout_s != 0) {
        RunningCallback::require_not_of(engine);
    }
    const auto                   deadline = deadline_after(timeout_s);
    std::unique_lock<std::mutex> lock(mutex_);
    n_wanted_ = n_read_ + static_cast<size_t>(std::max(min_tokens, 1));

    if (phase_ == Phase::WAITING && deadline_ && Clock::now() >= *deadline_) {
        end_locked(PYG_FINISH_TIMEOUT, -1);
    }
    const auto ready = [&] { return ready_locked(); };
    while (!ready() && timeout_s != 0) {
        // A queued request must meet its deadline even if the engine is busy with another one.
        const bool own_deadline = phase_ == Phase::WAITING && deadline_ && (!deadline || *deadline_ < *deadline);
        const auto until        = own_deadline ? deadline_ : deadline;
        if (!until) {
            changed_.wait(lock, ready);
        } else if (!changed_.wait_until(lock, *until, ready)) {
            if (!own_deadline) {
                break;
            }
            if (phase_ == Phase::WAITING) {
                end_locked(PYG_FINISH_TIMEOUT, -1);
            }
        }
    }
    const bool arms = waker_ && !ready();
    if (arms != armed_) {
        arms ? waker_->reserve() : waker_->cancel_reservation();
        armed_ = arms;
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

void Request::copy_logprobs(bool of_prompt, int32_t first, int32_t n, float * logprobs, int32_t * top_ids,
                            float * top) const {
    std::lock_guard<std::mutex> lock(mutex_);
    (of_prompt ? prompt_logprobs_ : logprobs_).copy(first, n, logprobs, top_ids, top);
}

pyg_request_state Request::state_locked() const {
    const auto now         = Clock::now();
    const bool has_started = phase_ != Phase::WAITING;
    const bool has_tokens  = phase_ == Phase::ENDED || !generated_.empty();

    pyg_request_state state = {};
    state.finish            = phase_ == Phase::ENDED && n_read_ == generated_.size() ? finish_ : PYG_FINISH_NONE;
    state.stop_token_id     = stop_token_id_;
    state.n_prompt          = static_cast<int32_t>(n_prompt);
    state.n_cached          = static_cast<int32_t>(n_cached_seen_);
    state.n_prefilled       = static_cast<int32_t>(n_prefilled_);
    state.n_generated       = static_cast<int32_t>(generated_.size());
    state.n_read            = static_cast<int32_t>(n_read_);
    state.n_preemptions     = n_preemptions_seen_;
    state.n_prompt_logprobs = static_cast<int32_t>(prompt_logprobs_.size());
    state.guesses           = guess_counts_;
    state.queue_s           = seconds_between(submitted_, has_started ? started_ : now);
    state.prefill_s         = has_started ? seconds_between(started_, has_tokens ? first_token_ : now) : 0;
    state.decode_s          = has_tokens ? seconds_between(first_token_, last_token_) : 0;
    return state;
}

Failure queue_full(uint32_t max_queue) {
    return fail(PYG_ERR_QUEUE_FULL,
                "%u requests are already waiting, as many as max_queue allows: try again when some have finished, or "
                "load with a larger max_queue",
                max_queue);
}

}  // namespace pyg

pyg_status pyg_request_wait(pyg_request * request, int32_t min_tokens, double timeout_s, int32_t * token_ids,
                            int32_t max_tokens, int32_t * n_out, pyg_request_state * state, pyg_error * err) {
    // Not pyg::with, which would hold the handle's lock while waiting and block cancel.
    pyg_status       status = PYG_OK;
    const pyg_status outer  = pyg::guard(err, [&] {
        status = pyg::shared_object(request)->wait(min_tokens, timeout_s, token_ids, max_tokens, n_out, state, err);
    });
    return outer != PYG_OK ? outer : status;
}

pyg_status pyg_request_saved_prefix(pyg_request * request, const void ** data, size_t * size, pyg_error * err) {
    return pyg::with(request, err, [&](const pyg::Request & self) {
        const pyg::StateBytes & bytes = self.saved_prefix();
        *data                         = bytes.data();
        *size                         = bytes.size();
    });
}

pyg_status pyg_request_logprobs(pyg_request * request, bool of_prompt, int32_t first, int32_t n, float * logprobs,
                                int32_t * top_ids, float * top, pyg_error * err) {
    return pyg::with(request, err, [&](const pyg::Request & self) {
        self.copy_logprobs(of_prompt, first, n, logprobs, top_ids, top);
    });
}

void pyg_request_cancel(pyg_request * request) {
    if (request && !request->inherited()) {
        request->object->cancel();
    }
}

void pyg_request_free(pyg_request * request) {
    const bool waits = request && !request->inherited() && request->object->logits;
    waits ? pyg::RunningCallback::run_outside([=] { pyg::free_handle(request); }) : pyg::free_handle(request);
}
