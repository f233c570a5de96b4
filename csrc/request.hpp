// All state of one generation.
#pragma once

#include "handles.hpp"
#include "sampling.h"

#include <chrono>
#include <condition_variable>
#include <optional>
#include <vector>

namespace pyg {

using Clock = std::chrono::steady_clock;

// What is sampled from each row of logits: upstream's sampler, or a plain argmax where that is all it would do.
class TokenSampler {
  public:
    // PYG_ERR_GRAMMAR, PYG_ERR_INVALID_PARAMETER
    // `n_ctx` bounds what the penalties can look back at.
    TokenSampler(const Model & model, uint32_t n_ctx, const pyg_sampling & options);

    // Samples from the row of batch index `index` of the context's last decode.
    // PYG_ERR_GRAMMAR or PYG_ERR_INVALID_PARAMETER when the options together leave no token to choose.
    int32_t sample(llama_context * context, int32_t n_vocab, int32_t index);

    // What the penalties look back at before anything is generated.
    void accept_prompt(const std::vector<int32_t> & prompt);

  private:
    int32_t choose(llama_context * context, int32_t index);

    common_sampler_ptr sampler_;  // null: greedy without anything that changes the logits
    bool               has_grammar_ = false;
};

// A request is shared by the caller's handle and the engine; either may outlive the other. Its life is
// waiting -> running -> ended, or waiting -> ended for one that is cancelled or times out in the queue.
//
// The engine's thread alone runs it: start(), publish(), prefilled(), end(). Any thread may read, cancel or ask.
class Request {
  public:
    // Validates everything; throws Failure.
    Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
            const pyg_request_options & options);
    // One that wants the logits of every prompt position instead of new tokens.
    Request(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt, float * logits);

    // --- the engine's thread ---
    bool start();  // false: it has already ended in the queue
    void prefilled(int32_t n_tokens);
    void publish(int32_t token_id);
    void end(pyg_finish finish, int32_t stop_token_id = -1);
    void end(const pyg_error & error);

    // Why it should stop now, if it should. Cheap: called between the steps of a decode.
    std::optional<pyg_finish> interruption() const;

    bool is_stop(int32_t token_id) const;

    // --- any thread ---
    void       cancel();
    pyg_status wait(int32_t min_tokens, double timeout_s, int32_t * token_ids, int32_t max_tokens, int32_t * n_out,
                    pyg_request_state * state, pyg_error * err);
    bool       is_waiting() const;
    void       await_end();

    const std::vector<int32_t> prompt;
    const int32_t              max_tokens;
    float * const              logits;  // destination of a logits request, else null
    TokenSampler *             sampler() { return sampler_ ? &*sampler_ : nullptr; }

  private:
    enum class Phase { WAITING, RUNNING, ENDED };

    void              end_locked(pyg_finish finish, int32_t stop_token_id);
    bool              past_deadline() const { return deadline_ && Clock::now() >= *deadline_; }
    pyg_request_state state_locked() const;

    std::optional<TokenSampler>            sampler_;
    std::vector<int32_t>                   stop_token_ids_;  // sorted
    const Clock::time_point                submitted_;
    const std::optional<Clock::time_point> deadline_;
    std::atomic<bool>                      cancelled_{false};

    mutable std::mutex      mutex_;
    std::condition_variable news_;
    Phase                   phase_         = Phase::WAITING;
    pyg_finish              finish_        = PYG_FINISH_NONE;
    pyg_error               error_         = {};
    int32_t                 stop_token_id_ = -1;
    std::vector<int32_t>    generated_;
    size_t                  n_read_      = 0;
    size_t                  n_wanted_    = 0;  // the reader sleeps until this many are generated
    int32_t                 n_prefilled_ = 0;
    Clock::time_point       started_, first_token_, last_token_;
};

}  // namespace pyg

struct pyg_request : pyg::Handle {
    std::shared_ptr<pyg::Request> request;

    explicit pyg_request(std::shared_ptr<pyg::Request> shared)
        : Handle(PYG_HANDLE_REQUEST), request(std::move(shared)) {}
    void release() {
        request->cancel();
        if (request->logits) {
            request->await_end();  // the engine may be writing to memory that the caller is about to free
        }
    }
    void leak() {}
};
