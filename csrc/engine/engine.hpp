// Inference engine: one context, one native thread, continuous batching of any number of requests.
//
// Callers submit requests and read their tokens; only the engine's thread decodes. There are three kinds of lock, taken
// in this order and never held during a forward pass or sampling: the engine's (scheduler, counters), each request's
// (state visible to its reader), each waker's.
#pragma once

#include "context/forward.hpp"
#include "engine/adapters.hpp"
#include "engine/proposers/draft_model.hpp"
#include "engine/request.hpp"
#include "engine/scheduling/context_kv_cache.hpp"
#include "engine/scheduling/kv_layout.hpp"
#include "engine/scheduling/snapshot_files.hpp"
#include "engine/speculation/column_costs.hpp"
#include "engine/threads/helper_threads.hpp"
#include "engine/threads/thread_tuner.hpp"
#include "sampling/device_sampler.hpp"

#include <deque>
#include <thread>
#include <utility>

namespace pyg {

// Every task of the engine is a request.
inline Request & request_of(const std::shared_ptr<Task> & task) { return static_cast<Request &>(*task); }

class Engine : NonCopyable {
  public:
    // Return true if a step must fit in one micro-batch. Upstream allocates cells for all micro-batches of a step
    // before it computes the first. In a sliding-window cache each of them takes over cells outside of its sequences'
    // windows, which earlier micro-batches may still attend to.
    static bool steps_are_micro_batches(const Context & context);

    // Return true if the KV cache of the context may be divided into streams: upstream copies whole streams only, which
    // a sliding window or a recurrent state does not allow, and not between tensors that are divided among devices.
    static bool can_divide(const Context & context);
    // Cells of each stream if `n_cells` are divided among the sequences; 0: too few.
    static uint32_t n_per_stream(const Context & context, uint32_t n_cells);

    // `draft`: of the draft model, or null.
    Engine(std::shared_ptr<Context> context, std::shared_ptr<Context> draft, const pyg_engine_options & options);
    ~Engine();

    void submit(std::shared_ptr<Request> request);
    void notify_when_queue_has_capacity(std::shared_ptr<Waker> waker, uint64_t tag);
    void reset();
    // Add a saved prefix, decoded with this fingerprint, to the prefix cache, for requests with this salt. Return its
    // number of tokens.
    uint64_t         fingerprint_of_prefixes() const;
    uint32_t         restore_prefix(std::shared_ptr<Snapshot> snapshot, uint64_t cache_salt);
    pyg_engine_stats stats() const;

    std::vector<pyg_slot> slots() const;
    // Tokens that an idle slot has cached for requests with this salt.
    std::vector<int32_t> cached_tokens(uint32_t slot, uint64_t cache_salt) const;
    // Drop them, before the next step. Return how many there are.
    size_t erase_slot(uint32_t slot, uint64_t cache_salt);

    std::shared_ptr<Model> model() const { return model_; }
    uint32_t               n_ctx() const { return n_ctx_; }

    // Guessed tokens: of requests that leave it open, one of pyg_speculative; and the reason why there are none,
    // static, or null. Requests that insist on them are refused then.
    struct Speculation {
        int32_t                       mode;
        const char *                  obstacle;
        std::shared_ptr<DraftRecord>  draft   = nullptr;  // of the draft model, or null
        std::shared_ptr<FormatMemory> formats = nullptr;  // outputs of earlier requests; never null of an engine
    };
    static Speculation speculation_of(const Context & context, const pyg_engine_options & options);
    Speculation speculation() const { return {speculation_.mode, speculation_.obstacle, draft_record_, formats_}; }

  private:
    // How a request ended. With PYG_FINISH_ERROR, the request has the error already: it takes kilobytes, which must not
    // be copied for every token.
    struct End {
        pyg_finish finish;
        int32_t    stop_token_id = -1;
    };
    using Ended = std::pair<Request *, End>;
    enum class StepResult { COMPUTED, INTERRUPTED, NO_CELLS };

    // The next tokens of a request, while they are sampled.
    struct Sample {
        Request * request;
        int32_t   row;                 // row of the step's logits; those of its guesses follow
        float *   logits   = nullptr;  // null if they are on the device
        DeviceRow found    = {};       // by the device
        size_t    n_right  = 0;        // guesses that equal the first tokens
        int32_t   token_id = -1;       // the token after them; -1: takes the logits
        double    seconds  = 0;        // spent on sampling
        bool      failed   = false;

        bool    is_processed = false;  // the row of the request's logits processor replaces the logits
        int32_t chosen       = -1;     // by that processor, else -1

        bool is_sampled() const { return token_id >= 0 || failed; }
    };

    void                          run();
    void                          end_all_as_closed();
    bool                          has_work() const;
    bool                          wait_for_work();
    std::chrono::duration<double> batching_delay() const;

    // One step: schedule, compute, sample and publish.
    void               run_step();
    static KvLayout    layout_for(const Context & context, const pyg_engine_options & options);
    void               choose_layout();
    KvLayout::Load     layout_load() const;
    void               change_layout(uint32_t n_per_stream);
    Step               next_step();
    void               group_by_adapters(std::unique_lock<std::mutex> & lock);
    void               add_guesses(Step & step);
    void               propose(const Step & step);
    void               draft(Speculator::Load load);
    void               run_draft_model(Speculator::Load load, double unit);
    void               measured_decode(double seconds);
    void               measured_tokens(uint64_t n);
    void               lose_draft_model(const pyg_error & error, bool state_unknown);
    size_t             most_guesses(const Request & request) const;
    void               learn_from_samples(const Step & step);
    void               settle_guesses(const Step & step);
    llama_batch        batch_of(const Step & step);
    void               add_slice(const Slice & slice);
    void               add_filler(int32_t & seq_id);
    void               remove_fillers();
    StepResult         compute(const Step & step);
    void               sample_and_publish(const Step & step);
    void               collect_samples(const Step & step);
    std::optional<End> publish_logits(Request & request, const Slice & slice);
    void               save_prefix(Request & request);
    void               sample_all();
    void               sample_each();
    void               sample(Sample & sample);
    void               sample_rows(Sample & sample) const;
    void               process_logits();
    int32_t            sample_row(Sample & sample, float * logits) const;
    void               sample_on_device(Sample & sample) const;
    void               fetch_rows();
    void               decode_again(const Step & step);
    void               shift_contexts(const Step & step);
    uint64_t           publish_all();
    std::optional<End> publish(const Sample & sample, Clock::time_point now);
    std::optional<End> publish(Request & request, int32_t token_id, Clock::time_point now);
    template <class Body>
    void run_guarded(Request & request, Body && body);

    void    sweep();
    void    end(Request & request, const End & end, bool evict_cells = false);
    int32_t n_queued() const;

    const std::vector<int32_t> & cached_tokens_locked(uint32_t slot, uint64_t cache_salt) const;
    size_t                       queue_capacity() const;
    void                         notify_capacity_waiters();
    void                         reset_kv_cache();

    void                           erase_requested_slots();
    void                           add_restored();
    void                           store_cached_slots();
    void                           count_saved_states();
    uint64_t                       require_fingerprint() const;
    std::unique_ptr<SnapshotFiles> open_files(const pyg_engine_options & options);

    void end_with_error(Request & request, const pyg_error & error);
    void recover(const pyg_error & error, bool state_unknown);
    void fail_step(const pyg_error & error);
    void fail_all_requests(const pyg_error & error);

    uint32_t                 prefill_tokens(double seconds) const;
    Scheduler::PrefillBudget prefill_budget() const;
    const Request *          interruptible_request(const Step & step) const;
    void                     apply_thread_tuning(uint32_t n_tokens);
    void                     stop_tuning();
    void                     update_stats(const Step & step, double seconds);
    static LogitsNeed        need_of(const Step & step);
    static bool              should_abort(void * self);

    const std::shared_ptr<Model> model_;
    std::shared_ptr<Context>     context_;
    const uint32_t               n_ctx_;  // limit of each request
    const int32_t                n_vocab_;
    const uint32_t               n_parallel_;
    const uint32_t               n_cells_;  // of a unified KV cache
    const uint32_t               max_queue_;
    const bool                   prefix_cache_;
    const bool                   is_reproducible_;
    const uint32_t               n_rows_max_;  // of logits of a step with guesses
    const Speculation            speculation_;
    const DeviceUse              device_use_;
    ContextKvCache               cache_;
    EngineAdapters               adapters_;

    const std::optional<uint64_t>        fingerprint_;  // of the KV cells; empty if the model's file cannot be read
    const std::unique_ptr<SnapshotFiles> files_;        // null without a directory

    // Used by the engine's thread only.
    KvLayout                            layout_;
    DeviceSampler                       device_sampler_;
    BatchArrays                         batch_;
    std::vector<int32_t>                rows_;     // by slice of the step: the batch index of its last token
    std::vector<int32_t>                fillers_;  // sequences with a token in the batch that belongs to no request
    ColumnCosts                         column_costs_;
    std::unique_ptr<DraftModel>         draft_;         // null if there is none, or none any more
    const std::shared_ptr<DraftRecord>  draft_record_;  // null if there was none
    const std::shared_ptr<FormatMemory> formats_   = std::make_shared<FormatMemory>();
    double                              trials_s_  = 0;  // time that trials of the draft model may take
    double                              drafted_s_ = 0;  // that it took in this step
    double                              decode_s_  = 0;  // of this step's forward pass; 0: it has prompts
    double                              rate_      = 0;  // as Speculator::Load
    std::vector<Request *>              guessing_;       // requests of the step that may have guesses
    std::vector<Request *>              drafting_;       // those that the draft model guesses for
    std::vector<DraftModel::Job>        drafts_;         // of drafting_
    std::vector<int32_t>                guesses_;        // scratch buffer
    Step                                step_;
    std::vector<Sample>                 samples_;              // of the current step
    std::vector<Sample *>               unsampled_;            // of these, without a token yet
    std::vector<Sample *>               processed_;            // of these, with a logits processor
    LogitsRows                          callback_rows_;        // of processed_
    std::vector<Ended>                  ended_;                // by the current step
    size_t                              n_rows_      = 0;      // of the current step's logits
    bool                                only_decode_ = false;  // in the next step
    Clock::time_point                   step_started_;
    double                              compute_s_    = 0;  // duration of the last forward pass
    double                              s_per_sample_ = 0;
    HelperThreads                       helpers_;
    std::optional<ThreadTuner> tuner_;  // empty if the caller set the number of threads, or devices compute everything
    int32_t                    n_threads_          = 0;        // last applied; 0: none
    const Request *            interruptible_      = nullptr;  // cancelling this request aborts the current step
    bool                       interrupted_before_ = false;
    double                     s_per_prompt_token_ = 0;  // 0: not measured yet
    Clock::time_point          swept_;

    mutable std::mutex                   mutex_;
    std::condition_variable              work_;
    Scheduler                            scheduler_;
    CapacityWaiters                      capacity_waiters_;
    std::deque<std::shared_ptr<Request>> ungrouped_;  // submitted with adapters, without a group yet
    pyg_engine_stats                     stats_           = {};
    bool                                 evict_requested_ = false;
    std::vector<int32_t>                 erased_slots_;                   // by callers, and not evicted yet
    bool                                 may_have_leaked_cells_ = false;  // after std::bad_alloc in the KV cache
    bool                                 broken_                = false;  // the state of the context is unknown
    std::atomic<bool>                    closing_{false};

    std::vector<std::shared_ptr<const Snapshot>> restored_;  // to be added to the prefix cache by the next step

    std::thread thread_;  // last member: starts when the others exist
};

// Error for prefixes to save or to restore without prefix_cache.
Failure no_prefix_cache();

// Submit a request to the engine behind a handle, as pyg_engine_submit does. Call it inside a guard.
std::shared_ptr<Request> submit_request(pyg_engine * engine, const int32_t * prompt, int32_t n_prompt,
                                        const pyg_request_options & options);

}  // namespace pyg
