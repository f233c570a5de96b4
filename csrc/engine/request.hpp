// State of one request.
#pragma once

#include "adapters/adapter_set.hpp"
#include "engine/deadline.hpp"
#include "engine/logits_callback.hpp"
#include "engine/proposers/drafted_tokens.hpp"
#include "engine/proposers/format_lookup.hpp"
#include "engine/scheduling/scheduler.hpp"
#include "engine/speculation/speculator.hpp"
#include "engine/waker.hpp"
#include "sampling/logprobs.hpp"
#include "sampling/token_sampler.hpp"

#include <condition_variable>
#include <functional>
#include <optional>
#include <vector>

namespace pyg {

// Shared by the caller's handle and the engine; either may outlive the other. Its phases are waiting -> running ->
// ended, or waiting -> ended if it is cancelled or times out in the queue. It counts as running from its first step on,
// even while preempted.
//
// Only the engine's thread changes the Task part. Everything callers see is a copy under the request's own lock.
class Request : public Task {
  public:
    // Validates everything; throws Failure.
    Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
            const pyg_request_options & options);
    // A request for the logits of every prompt position instead of new tokens.
    Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
            const pyg_scaled_adapter * adapters, int32_t n_adapters, float * logits);

    // --- the engine's thread, or the helper thread that samples for this request ---
    bool start();  // before its first step; false if it has already ended
    void prefilled(uint32_t n_tokens);
    void record_logprobs(const float * row, int32_t n_vocab, int32_t token_id);  // of the next token to be published
    // `rows`: logits of tokens [first, first + n), each of which predicts the next token.
    void record_prompt_logprobs(const float * rows, int32_t n_vocab, uint32_t first, uint32_t n);
    void publish(int32_t token_id, Clock::time_point now);
    void set_error(const pyg_error & error);  // of a later end(PYG_FINISH_ERROR)
    void set_saved_prefix(StateBytes bytes);  // before the end
    void end(pyg_finish finish, int32_t stop_token_id = -1);
    void end(const pyg_error & error);

    TokenSampler * sampler() { return sampler_ ? &*sampler_ : nullptr; }
    bool           is_stop(int32_t token_id) const;
    bool           wants_logprobs() const { return logprobs_.wanted(); }
    // Null if there is none.
    LogitsProcessor * logits_processor() { return processor_ ? &*processor_ : nullptr; }
    // True if each token takes its whole row of logits.
    bool needs_row() const { return wants_logprobs() || processor_; }
    // Where the sampler puts the logprobs of the next token; null if they are computed from the row.
    Logprobs * processed_logprobs() {
        return wants_logprobs() && has_processed_logprobs_ ? &scratch_logprobs_ : nullptr;
    }
    uint32_t n_generated() const { return n_tokens() + n_dropped - n_prompt; }
    bool     is_full() const { return n_generated() >= static_cast<uint32_t>(max_tokens); }
    bool     repeats_itself() const;  // and must end, therefore
    bool     in_prefill() const { return n_past < n_prompt && n_dropped == 0; }

    // Guess tokens from now on, by some of the proposers: one of pyg_speculative, not DEFAULT or OFF. Any thread,
    // before the request is shared. `n_fixed`: as Speculator; `draft`: of the engine's draft model, or null.
    // `formats`: outputs of earlier requests.
    void start_guessing(int32_t mode, size_t n_fixed, std::shared_ptr<DraftRecord> draft, FormatMemory & formats);
    void stop_guessing() { speculator_.reset(); }
    Speculator * speculator() { return speculator_ ? &*speculator_ : nullptr; }
    void         count_guesses(ProposerKind kind, uint32_t n_drafted, uint32_t n_accepted);

    // Return why the request should stop now, if it should. Cheap: called between the nodes of a graph.
    std::optional<pyg_finish> interruption(Clock::time_point now) const;

    // --- a request computed by another process: one thread updates it instead of the engine's ---
    // Make this request a mirror: cancelling it calls `forward_cancel`, and only mirror() ends it. Call it before the
    // request is shared.
    void become_mirror(std::function<void()> forward_cancel);
    // Add tokens and logprobs. `state` is that of the other process; `error` the reason for PYG_FINISH_ERROR, else
    // null.
    void mirror(const pyg_request_state & state, const std::vector<int32_t> & new_tokens, const LogprobRows & rows,
                const LogprobRows & prompt_rows, const pyg_error * error);

    int32_t n_logprobs() const { return logprobs_.n_top(); }
    int32_t n_prompt_logprobs() const { return prompt_logprobs_.n_top(); }

    // --- any thread ---
    void       cancel();
    pyg_status wait(int32_t min_tokens, double timeout_s, int32_t * token_ids, int32_t max_tokens, int32_t * n_out,
                    pyg_request_state * state, pyg_error * err);
    void       copy_logprobs(bool of_prompt, int32_t first, int32_t n, float * logprobs, int32_t * top_ids,
                             float * top) const;
    // Of a request that has ended; valid as long as the request. PYG_ERR_INVALID_PARAMETER if there is none.
    const StateBytes & saved_prefix() const;
    bool               has_ended() const;
    void               await_end();

    const void * engine = nullptr;  // that computes it, set before it is queued; null for a mirror
    // Null for none. The engine's thread lets go of them when the request has ended.
    std::shared_ptr<const AdapterSet> adapters;

    const uint32_t n_prompt;
    const int32_t  max_tokens;    // -1: no limit
    const bool     shifts;        // goes on when the context is full, without the older half of the tokens after n_keep
    const uint32_t n_keep;        // of these, the first are kept
    float * const  logits;        // destination of a logits request, else null
    const bool     saves_prefix;  // copies the prompt's cells when they are computed

  private:
    enum class Phase { WAITING, RUNNING, ENDED };

    void              end_locked(pyg_finish finish, int32_t stop_token_id);
    bool              ready_locked() const { return phase_ == Phase::ENDED || generated_.size() >= n_wanted_; }
    void              wake_locked();
    pyg_request_state state_locked() const;

    std::optional<TokenSampler>            sampler_;
    std::optional<Speculator>              speculator_;
    std::optional<LogitsProcessor>         processor_;
    uint64_t                               format_ = 0;      // hash of the grammar and the salt; 0: there is no grammar
    std::vector<int32_t>                   stop_token_ids_;  // sorted
    const bool                             repetition_guard_ = false;
    const Clock::time_point                submitted_;
    const std::optional<Clock::time_point> deadline_;
    std::atomic<bool>                      cancelled_{false};
    std::function<void()>                  forward_cancel_;  // of a mirror, else empty
    std::shared_ptr<Waker>                 waker_;           // may be null
    const uint64_t                         tag_                    = 0;
    const bool                             has_processed_logprobs_ = false;
    Logprobs                               scratch_logprobs_;  // scratch buffer of that thread

    mutable std::mutex      mutex_;
    std::condition_variable changed_;
    Phase                   phase_         = Phase::WAITING;
    pyg_finish              finish_        = PYG_FINISH_NONE;
    pyg_error               error_         = {};
    int32_t                 stop_token_id_ = -1;
    StateBytes              saved_prefix_;
    std::vector<int32_t>    generated_;
    LogprobTable            logprobs_;         // of generated_; one row more while the next token is being published
    LogprobTable            prompt_logprobs_;  // of the second prompt token, the third ...
    size_t                  n_read_             = 0;
    size_t                  n_wanted_           = 0;      // the reader waits until this many are generated
    bool                    armed_              = false;  // wake the waker then
    bool                    has_started_        = false;  // changed by the engine's thread only
    uint32_t                n_cached_seen_      = 0;
    int32_t                 n_preemptions_seen_ = 0;
    uint32_t                n_prefilled_        = 0;
    pyg_guess_counts        guess_counts_       = {};
    Clock::time_point       started_, first_token_, last_token_;
};

// Error for a request that exceeds `max_queue`.
Failure queue_full(uint32_t max_queue);

}  // namespace pyg

struct pyg_request : pyg::PointerHandle<std::shared_ptr<pyg::Request>, PYG_HANDLE_REQUEST> {
    using PointerHandle::PointerHandle;
    void release() {
        object->cancel();
        if (object->logits) {
            object->await_end();  // the engine may be writing to memory the caller is about to free
        }
    }
    void leak() {}
};
