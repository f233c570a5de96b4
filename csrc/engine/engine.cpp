// The engine's queue and main loop. A single step is in step.cpp.
#include "engine/engine.hpp"

#include "context/fingerprint.hpp"
#include "llama-model.h"
#include "platform/platform.hpp"

#include <algorithm>
#include <cstring>

namespace {

using pyg::fail;

// From 64 rows on, upstream's flash attention on the CPU uses a tiled kernel with another rounding, which a quantised
// model amplifies to about one percent. With fewer rows, each row equals that of a single-token decode.
constexpr uint32_t MAX_LOGITS_ROWS = 32;

// Where devices compute everything: the most threads for looking up embeddings of several tokens (a single token takes
// one thread), and for sampling.
constexpr int32_t MAX_EMBEDDING_THREADS = 4, MAX_SAMPLING_THREADS = 16;

constexpr auto   SWEEP_EVERY          = std::chrono::milliseconds(10);
constexpr double BATCHING_DELAY_SHARE = 0.01;
constexpr double BATCHING_DELAY_MAX_S = 0.003;

constexpr const char * BROKEN =
    "the engine failed during an earlier request and cannot continue: close it and load the model again";

pyg::Failure broken() { return fail(PYG_ERR_ENGINE_LOST, "%s", BROKEN); }

pyg::Scheduler::Limits limits_of(const pyg::Context & context, const pyg_engine_options & options) {
    pyg::Scheduler::Limits limits;
    limits.n_seq   = static_cast<int32_t>(llama_n_seq_max(context.raw));
    limits.n_cells = options.n_ctx;
    limits.n_batch =
        pyg::Engine::steps_are_micro_batches(context) ? llama_n_ubatch(context.raw) : llama_n_batch(context.raw);
    limits.n_rows             = std::min({MAX_LOGITS_ROWS, limits.n_batch, context.n_outputs_max});
    limits.n_ubatch           = llama_n_ubatch(context.raw);
    limits.prefix_cache       = options.prefix_cache;
    limits.prefix_cache_bytes = options.prefix_cache_bytes;
    return limits;
}

// Not with Vulkan: with Mesa's llvmpipe it has corrupted the heap, for a reason that is not known.
bool may_sample_on_device(const pyg::Context & context) {
    if (!pyg::device_use_of(context.raw).output_on_device) {
        return false;
    }
    ggml_backend_reg_t const backend = ggml_backend_dev_backend_reg(context.model->raw->dev_output());
    return !backend || std::strcmp(ggml_backend_reg_name(backend), "Vulkan") != 0;
}

}  // namespace

namespace pyg {

bool Engine::steps_are_micro_batches(const Context & context) { return llama_model_n_swa(context.model->raw) != 0; }

Engine::Engine(std::shared_ptr<Context> context, std::shared_ptr<Context> draft, const pyg_engine_options & options)
    : model_(context->model), context_(std::move(context)),
      n_ctx_(std::min(options.n_ctx, static_cast<uint32_t>(n_positions(*model_)))), n_vocab_(model_->n_vocab()),
      n_parallel_(llama_n_seq_max(context_->raw)), n_cells_(llama_n_ctx(context_->raw)), max_queue_(options.max_queue),
      prefix_cache_(options.prefix_cache), is_reproducible_(n_parallel_ == 1 && !options.prefix_cache),
      n_rows_max_(limits_of(*context_, options).n_rows), speculation_(speculation_of(*context_, options)),
      device_use_(device_use_of(context_->raw)), cache_(*context_, &mutex_), adapters_(*context_),
      fingerprint_(cells_fingerprint(*context_)), files_(open_files(options)), layout_(layout_for(*context_, options)),
      device_sampler_(*context_, options.backend_sampling && may_sample_on_device(*context_),
                      cache_.rewinds() || steps_are_micro_batches(*context_)),
      draft_(draft ? std::make_unique<DraftModel>(std::move(draft), *context_) : nullptr),
      draft_record_(draft_ ? draft_->record() : nullptr),
      helpers_(*context_,
               device_use_.all_on_devices ? std::min(llama_n_threads(context_->raw), MAX_SAMPLING_THREADS) : 0),
      scheduler_(limits_of(*context_, options), cache_, files_.get()) {
    if (options.adapt_threads && device_use_.all_on_devices) {
        context_->set_threads(1, std::min(llama_n_threads_batch(context_->raw), MAX_EMBEDDING_THREADS));
    }
    if (draft_) {
        draft_->share_threads(*context_);
    }
    stats_.n_parallel      = static_cast<int32_t>(n_parallel_);
    stats_.n_threads       = llama_n_threads(context_->raw);
    stats_.n_threads_batch = llama_n_threads_batch(context_->raw);
    stats_.n_cells         = scheduler_.n_cells();
    stats_.n_kv_streams    = 1;
    if (options.adapt_threads && !device_use_.all_on_devices) {
        tuner_.emplace(pyg_cpu_count());
    }
    const platform::SignalsBlocked signals_go_to_the_callers_threads;
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
        pyg::leak_object(std::move(context_));  // its state is unknown
    }
}

void Engine::submit(std::shared_ptr<Request> request) {
    if (request->saves_prefix && !prefix_cache_) {
        throw no_prefix_cache();
    }
    if (!cache_.rewinds() && scheduler_.saves_states()) {
        const llama_vocab * vocab = llama_model_get_vocab(model_->raw);
        request->checkpoint_at    = checkpoint_lengths(
            request->tokens, [&](int32_t id) { return llama_vocab_get_attr(vocab, id) & LLAMA_TOKEN_ATTR_CONTROL; });
        if (request->max_tokens == 0 && !request->needs_all_logits) {
            request->checkpoint_at.push_back(request->n_tokens());  // a prefix of several prompts to come
        }
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (broken_) {
            throw broken();
        }
        if (queue_capacity() == 0) {
            throw queue_full(max_queue_);
        }
        request->engine = this;
        if (request->adapters) {
            ungrouped_.push_back(request);
        }
        scheduler_.add(std::move(request));
        stats_.n_requests++;
    }
    work_.notify_one();
}

void Engine::notify_when_queue_has_capacity(std::shared_ptr<Waker> waker, uint64_t tag) {
    std::lock_guard<std::mutex> lock(mutex_);
    capacity_waiters_.add(std::move(waker), tag, broken_ ? SIZE_MAX : queue_capacity());
}

void Engine::reset() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (broken_) {
            throw broken();
        }
        evict_requested_ = true;
        restored_.clear();
    }
    work_.notify_one();
}

pyg_engine_stats Engine::stats() const {
    std::lock_guard<std::mutex> lock(mutex_);
    pyg_engine_stats            stats = stats_;
    stats.n_cells_running             = scheduler_.n_cells_running();
    stats.n_cells_cached              = scheduler_.n_cells_used() - stats.n_cells_running;
    stats.n_cached_tokens             = scheduler_.n_cached();
    stats.n_preemptions               = scheduler_.n_preemptions();
    stats.n_grammars                  = context_->model->grammars.n_compiled();
    stats.n_queued                    = n_queued();
    stats.n_running                   = broken_ ? 0 : static_cast<int32_t>(scheduler_.running().size());
    return stats;
}

// Waiting requests, except those that have ended and are not swept yet.
int32_t Engine::n_queued() const {
    const auto & waiting = scheduler_.waiting();
    return static_cast<int32_t>(
        std::count_if(waiting.begin(), waiting.end(), [](const auto & task) { return !request_of(task).has_ended(); }));
}

// Return how many more requests the queue takes. Requests for which a slot is free are admitted in the next step and do
// not count.
size_t Engine::queue_capacity() const {
    const size_t limit = size_t{max_queue_} + n_parallel_ - scheduler_.running().size();
    if (max_queue_ == 0 || scheduler_.idle()) {
        return SIZE_MAX;
    }
    if (scheduler_.waiting().size() < limit) {
        return limit - scheduler_.waiting().size();
    }
    return limit - std::min(limit, static_cast<size_t>(n_queued()));
}

void Engine::run() {
    platform::name_this_thread("pyggml-engine");
    llama_set_abort_callback(context_->raw, should_abort, this);
    if (draft_) {
        llama_set_abort_callback(draft_->context().raw, should_abort, this);
    }
    while (wait_for_work()) {
        pyg_error        error;
        bool             state_unknown = false;
        const pyg_status status        = guard(&error, [&] {
            try {
                run_step();
            } catch (const EngineAbort &) {
                state_unknown = true;
                throw;
            } catch (const std::bad_alloc &) {
                may_have_leaked_cells_ = true;
                throw;
            }
        });
        if (status != PYG_OK) {
            recover(error, state_unknown);
        }
        step_ = {};  // an idle engine must not keep requests alive
    }
    adapters_.clear();
    end_all_as_closed();
    store_cached_slots();  // takes long
}

void Engine::end_all_as_closed() {
    std::lock_guard<std::mutex> lock(mutex_);
    ungrouped_.clear();
    for (const auto & task : scheduler_.running()) {
        request_of(task).adapters.reset();
        request_of(task).end(PYG_FINISH_CLOSED);
    }
    for (const auto & task : scheduler_.waiting()) {
        request_of(task).adapters.reset();
        request_of(task).end(PYG_FINISH_CLOSED);
    }
    notify_capacity_waiters();
}

bool Engine::has_work() const {
    return !broken_ && (evict_requested_ || !erased_slots_.empty() || !restored_.empty() || !scheduler_.idle());
}

// Sleep while there is nothing to do. Return false when the engine is closing.
bool Engine::wait_for_work() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (scheduler_.idle() && !broken_) {
        adapters_.clear();  // whoever closes one waits for this
    }
    work_.wait(lock, [&] { return closing_ || has_work(); });
    if (scheduler_.running().empty() && n_parallel_ > 1) {
        work_.wait_for(lock, batching_delay(), [&] { return closing_ || scheduler_.waiting().size() >= n_parallel_; });
    }
    return !closing_;
}

// Return how long to wait for more requests before the first prefill: requests submitted together arrive one after
// another, and prefilling them in one batch is faster. A small fraction of the expected prefill time, once it is known.
std::chrono::duration<double> Engine::batching_delay() const {
    if (s_per_prompt_token_ == 0) {
        return std::chrono::duration<double>(BATCHING_DELAY_MAX_S);
    }
    size_t n_tokens = 0;
    for (const auto & task : scheduler_.waiting()) {
        n_tokens += task->tokens.size();
    }
    return std::chrono::duration<double>(
        std::min(BATCHING_DELAY_MAX_S, BATCHING_DELAY_SHARE * s_per_prompt_token_ * static_cast<double>(n_tokens)));
}

void Engine::run_step() {
    step_started_ = Clock::now();
    choose_layout();
    step_ = next_step();
    add_guesses(step_);
    if (step_.empty()) {
        only_decode_ = false;  // those requests have ended
        return;
    }
    const StepResult result = compute(step_);
    if (result == StepResult::COMPUTED) {
        sample_and_publish(step_);
        return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    scheduler_.rollback(step_);
    if (result == StepResult::NO_CELLS && !scheduler_.free_cells()) {
        throw fail(PYG_ERR_ENGINE, "the KV cache has no free cells for a batch of %u tokens: %s", step_.n_tokens,
                   engine_error_text().c_str());
    }
}

// Find the groups of requests with adapters, without the lock, which callers need. Those whose adapters cannot be
// applied end. If std::bad_alloc is thrown, the request still waits for its group, and so do those behind it.
void Engine::group_by_adapters(std::unique_lock<std::mutex> & lock) {
    while (!ungrouped_.empty()) {
        const std::shared_ptr<Request> request = ungrouped_.front();
        if (request->adapters) {
            lock.unlock();
            try {
                adapters_.set_group(*request);
            } catch (const Failure & failure) {
                pyg_error error;
                report(&error, failure);
                request->end(error);
            }
            lock.lock();
        }
        ungrouped_.pop_front();
    }
}

Step Engine::next_step() {
    std::unique_lock<std::mutex> lock(mutex_);
    group_by_adapters(lock);
    // The scheduler releases the lock while it copies cells. Requests that arrive meanwhile have no group yet, and
    // callers may have restored or erased prefixes before them, so they are left to the next step.
    const uint64_t n_admissible = scheduler_.n_arrived();
    if (std::exchange(evict_requested_, false)) {
        scheduler_.clear_prefix_cache();
        formats_->clear();
        if (draft_) {
            draft_->evict_all();
        }
        count_saved_states();
    }
    erase_requested_slots();
    add_restored();
    if (may_have_leaked_cells_ && scheduler_.running().empty()) {
        reset_kv_cache();
    }
    sweep();
    const Scheduler::PrefillBudget budget = prefill_budget();
    for (;;) {
        Step       step = scheduler_.next(budget, n_admissible);
        const auto dead = std::find_if(step.slices.begin(), step.slices.end(),
                                       [](const Slice & slice) { return !request_of(slice.task).start(); });
        if (dead == step.slices.end()) {
            notify_capacity_waiters();
            return step;
        }
        request_of(dead->task).adapters.reset();
        stats_.n_finished += scheduler_.end(*dead->task);  // cancelled since the sweep
    }
}

// Clear the KV cache after std::bad_alloc: upstream records a token's cell in several places, and may have leaked cells
// that no sequence refers to.
void Engine::reset_kv_cache() {
    scheduler_.evict_all();
    cache_.clear();
    may_have_leaked_cells_ = false;
}

// The engine's thread changes these without the lock, so callers see their numbers as of the last step.
void Engine::count_saved_states() {
    stats_.n_checkpoints     = scheduler_.checkpoints().n();
    stats_.checkpoint_bytes  = scheduler_.checkpoints().n_bytes();
    stats_.n_snapshots       = scheduler_.snapshots().n();
    stats_.snapshot_bytes    = scheduler_.snapshots().n_bytes() + scheduler_.snapshots().n_pinned_bytes();
    stats_.n_snapshot_hits   = scheduler_.n_snapshot_hits();
    stats_.n_snapshot_tokens = scheduler_.n_cached_in_snapshots();
    if (files_) {
        stats_.n_disk_snapshots    = files_->n();
        stats_.disk_snapshot_bytes = files_->n_bytes();
        stats_.n_disk_hits         = scheduler_.n_store_hits();
        stats_.n_disk_tokens       = scheduler_.n_cached_in_store();
    }
}

// End requests that were cancelled or have passed their deadline. The waiting ones, possibly thousands, are checked
// less often.
void Engine::sweep() {
    const auto                                                now = Clock::now();
    std::vector<std::pair<std::shared_ptr<Task>, pyg_finish>> over;
    for (const auto & task : scheduler_.running()) {
        if (const auto why = request_of(task).interruption(now)) {
            over.emplace_back(task, *why);
        }
    }
    if (now >= swept_ + SWEEP_EVERY) {
        swept_ = now;
        for (const auto & task : scheduler_.waiting()) {
            const auto why = request_of(task).interruption(now);
            if (why || request_of(task).has_ended()) {
                over.emplace_back(task, why.value_or(PYG_FINISH_CANCELLED));
            }
        }
    }
    for (const auto & [task, finish] : over) {
        end(request_of(task), {finish});
    }
}

// Ends the request in the scheduler first, so that its slot is free when the caller sees the end, and notifies the
// caller even if the scheduler throws.
void Engine::end(Request & request, const End & end, bool evict_cells) {
    const auto notify = [&] {
        request.adapters.reset();
        request.stop_guessing();  // first: the next request may look up its output
        request.end(end.finish, end.stop_token_id);
    };
    try {
        stats_.n_finished += scheduler_.end(request, evict_cells);
    } catch (...) {
        notify();
        throw;
    }
    notify();
}

void Engine::notify_capacity_waiters() { capacity_waiters_.notify(closing_ || broken_ ? SIZE_MAX : queue_capacity()); }

// Handle a failed step. If the state of the context is unknown, the engine accepts no more requests.
void Engine::recover(const pyg_error & error, bool state_unknown) {
    pyg_error another;
    // After std::bad_alloc the scheduler has changed nothing.
    const bool is_known = !step_.empty() || error.code == PYG_ERR_OUT_OF_MEMORY;
    if (tuner_) {
        tuner_->abandoned();
    }
    if (state_unknown || !is_known || guard(&another, [&] { fail_step(error); }) != PYG_OK) {
        fail_all_requests(error);
    }
}

// Fail the requests of the step. If scheduling itself failed, fail the youngest running or the first waiting request:
// the others may fit in memory without it. Allocates nothing.
void Engine::fail_step(const pyg_error & error) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Slice & slice : step_.slices) {
        end_with_error(request_of(slice.task), error);
    }
    if (step_.empty() && !scheduler_.idle()) {
        const bool                  any_runs = !scheduler_.running().empty();
        const std::shared_ptr<Task> task     = any_runs ? scheduler_.running().back() : scheduler_.waiting().front();
        end_with_error(request_of(task), error);
    }
    notify_capacity_waiters();
}

void Engine::end_with_error(Request & request, const pyg_error & error) {
    request.set_error(error);
    end(request, {PYG_FINISH_ERROR}, /*evict_cells=*/true);
}

void Engine::fail_all_requests(const pyg_error & error) {
    std::lock_guard<std::mutex> lock(mutex_);
    broken_            = true;
    const auto end_all = [](const auto & tasks, const pyg_error & reason) {
        for (const auto & task : tasks) {
            request_of(task).adapters.reset();
            request_of(task).end(reason);
        }
    };
    for (const Slice & slice : step_.slices) {
        request_of(slice.task).end(error);
    }
    pyg_error others;
    report(&others, PYG_ERR_ENGINE_LOST, BROKEN);  // allocates nothing: memory may have run out
    end_all(scheduler_.running(), others);
    end_all(scheduler_.waiting(), others);
    ungrouped_.clear();
    adapters_.clear();
    stats_.n_finished = stats_.n_requests;
    notify_capacity_waiters();
}

}  // namespace pyg
