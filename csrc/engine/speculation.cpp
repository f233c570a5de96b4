// Guessed tokens in the engine's steps.
//
// A request's guesses are computed with its last token, each with a row of logits. Its sampler then samples from these
// rows in order, for as long as the guesses equal what it samples, so it samples what it would without guesses: with
// batch-invariant kernels the rows have the same bits, and the random generator and the grammar advance only by tokens
// that are kept. The cells of the other guesses are dropped.
#include "boundary/log.hpp"
#include "engine/engine.hpp"
#include "engine/speculation/guess_counts.hpp"

#include <algorithm>
#include <string>

namespace {

// Time that the draft model may read prompts in a step, with other requests and without.
constexpr double DRAFT_READS_S = 0.05, DRAFT_READS_ALONE_S = 0.25;

// Share of the time of forward passes that may go to trials of a draft model that does not pay.
constexpr double TRIALS_SHARE = 0.01;

// Most time that is saved for trials, in durations of a single column.
constexpr double MOST_TRIALS = 16;

bool decodes(const pyg::Slice & slice) {
    return slice.n == 1 && slice.reaches_end() && !pyg::request_of(slice.task).in_prefill();
}

template <class Condition>
uint32_t n_slices_that(const pyg::Step & step, Condition && condition) {
    return static_cast<uint32_t>(std::count_if(step.slices.begin(), step.slices.end(), condition));
}

pyg::Speculator::Load load_of(const pyg::Step & step) {
    const uint32_t n_decodes = n_slices_that(step, decodes);
    return {n_decodes, static_cast<double>(n_decodes)};
}

}  // namespace

namespace pyg {

Engine::Speculation Engine::speculation_of(const Context & context, const pyg_engine_options & options) {
    const int32_t mode = options.speculative == PYG_SPECULATIVE_DEFAULT ? PYG_SPECULATIVE_AUTO : options.speculative;
    if (!options.batch_invariant) {
        return {mode, "some operations of the model are not batch-invariant as it is loaded, so guesses would change "
                      "its output"};
    }
    if (!ContextKvCache(context).can_drop_last_cells()) {
        return {mode, "the model's recurrent layers or chunked attention cannot drop wrong guesses"};
    }
    if (options.kv_layout == PYG_KV_STREAMS) {
        return {mode, "kv_unified is off, and a step of streams has as many tokens of each sequence"};
    }
    return {mode, nullptr};
}

// Let the requests that decode guess, one after the other, and the first ones most: they will end first.
void Engine::add_guesses(Step & step) {
    if (speculation_.obstacle || scheduler_.n_per_stream() > 0) {
        return;
    }
    propose(step);
    Speculator::Load load = load_of(step);
    drafted_s_            = 0;
    if (draft_) {
        const auto start = Clock::now();
        pyg_error  error;
        guard(&error, [&] { draft(load); });
        drafted_s_ = seconds_since(start);
    }
    auto n_rows = n_slices_that(step, [](const Slice & slice) { return slice.reaches_end(); });
    for (Request * const request : guessing_) {
        if (n_rows >= n_rows_max_) {
            return;
        }
        const size_t n_max = std::min<size_t>(most_guesses(*request), n_rows_max_ - n_rows);
        pyg_error    error;
        if (guard(&error, [&] { request->speculator()->choose(n_max, column_costs_, load, guesses_); }) != PYG_OK) {
            request->stop_guessing();
            continue;
        }
        if (!guesses_.empty()) {
            std::lock_guard<std::mutex> lock(mutex_);
            scheduler_.add_guesses(step, *request, guesses_);
            n_rows += static_cast<uint32_t>(request->guesses.size());
        }
    }
}

// Ask the proposers of the requests that decode.
void Engine::propose(const Step & step) {
    guessing_.clear();
    for (const Slice & slice : step.slices) {
        Request & request = request_of(slice.task);
        if (!decodes(slice) || !request.speculator()) {
            continue;
        }
        pyg_error error;
        if (guard(&error, [&] {
                request.speculator()->propose(request.tokens, most_guesses(request));
                guessing_.push_back(&request);
            }) != PYG_OK) {
            request.stop_guessing();
        }
    }
}

// Let the draft model guess for the requests for which that promises to pay, all in the same forward passes.
void Engine::draft(Speculator::Load load) {
    const double unit     = column_costs_.seconds_of_one();  // 0: not measured, and then nothing seems to cost any time
    const auto   in_units = [&](double seconds) { return unit > 0 ? seconds / unit : 0; };
    load.rate             = std::max(rate_, load.n_tokens / column_costs_.of(load.n_columns));
    const size_t n_each = (n_rows_max_ - std::min(n_rows_max_, load.n_columns)) / std::max<size_t>(guessing_.size(), 1);
    const double pass   = in_units(draft_->seconds_of_pass(std::max<size_t>(guessing_.size(), 1)));
    double       trials = in_units(trials_s_);
    size_t       n_trials = 0;
    drafts_.clear();
    drafting_.clear();
    for (Request * const request : guessing_) {
        DraftModel::Job              job      = {request->seq_id, request->cache_salt, &request->tokens, 0, {}};
        const size_t                 n_left   = most_guesses(*request);
        const double                 catch_up = in_units(draft_->seconds_to_read(job));
        const Speculator::DraftCosts costs    = {pass, catch_up, trials, n_left, guessing_.size()};
        const Speculator::Ask        ask =
            request->speculator()->ask_of_draft(std::min(n_left, n_each), column_costs_, load, costs);
        if (ask.n_max > 0) {
            job.n_max = ask.n_max;
            drafts_.push_back(std::move(job));
            drafting_.push_back(request);
        }
        if (ask.is_trial) {
            n_trials++;
            trials -= catch_up + pass;
        }
    }
    if (!drafts_.empty()) {
        const auto   start = Clock::now();
        const double share = static_cast<double>(n_trials) / static_cast<double>(drafts_.size());
        run_draft_model(load, unit);
        trials_s_ = std::max(trials_s_ - share * seconds_since(start), 0.0);
    }
}

// A step without prompts took so long.
void Engine::measured_decode(double seconds) {
    trials_s_ = std::min(trials_s_ + TRIALS_SHARE * seconds, MOST_TRIALS * column_costs_.seconds_of_one());
    decode_s_ = seconds;
}

// Such a step gave so many tokens.
void Engine::measured_tokens(uint64_t n) {
    constexpr double RATE  = 0.05;
    const double     units = (decode_s_ + drafted_s_) / column_costs_.seconds_of_one();
    if (decode_s_ > 0) {
        rate_ += RATE * (static_cast<double>(n) / units - rate_);
    }
    decode_s_ = 0;
}

void Engine::run_draft_model(Speculator::Load load, double unit) {
    const auto should_continue = [&](size_t i, double seconds) {
        const Speculator & speculator = *drafting_[i]->speculator();
        const Proposal &   proposal   = drafts_[i].proposal;
        load.n_columns++;
        load.n_tokens += speculator.chance_of(proposal);
        return speculator.drafts_more(proposal, column_costs_, load, unit > 0 ? seconds / unit : 0);
    };
    interruptible_ = nullptr;  // only closing the engine aborts it
    pyg_error        error;
    bool             state_unknown = false;
    const pyg_status status        = guard(&error, [&] {
        try {
            draft_->draft(drafts_, guessing_.size() > 1 ? DRAFT_READS_S : DRAFT_READS_ALONE_S, should_continue);
        } catch (const EngineAbort &) {
            state_unknown = true;
            throw;
        }
    });
    if (status == PYG_OK) {
        for (size_t i = 0; i < drafts_.size(); i++) {
            drafting_[i]->speculator()->set_drafted(std::move(drafts_[i].proposal));
        }
    } else if (error.code == PYG_ERR_OUT_OF_MEMORY && !state_unknown) {
        draft_->evict_all();
    } else {
        lose_draft_model(error, state_unknown);
    }
}

// Go on without the draft model, whose context cannot be used any more. The requests' tokens do not depend on it.
void Engine::lose_draft_model(const pyg_error & error, bool state_unknown) {
    if (state_unknown) {
        leak_object(std::move(draft_));
    }
    draft_.reset();
    const std::string text = std::string("the draft model is not used any more: ") + error.message + "\n";
    on_engine_log(GGML_LOG_LEVEL_WARN, text.c_str(), nullptr);
}

// Return how many guesses a request can use: after them it still samples a token.
size_t Engine::most_guesses(const Request & request) const {
    const uint32_t n_left =
        request.max_tokens < 0 ? UINT32_MAX : static_cast<uint32_t>(request.max_tokens) - request.n_generated();
    return std::min(n_left - std::min(n_left, 1u), n_ctx_ - std::min(n_ctx_, request.n_tokens()));
}

void Engine::learn_from_samples(const Step & step) {
    for (const Slice & slice : step.slices) {
        Request &      request = request_of(slice.task);
        const uint32_t n_own   = slice.first + slice.n;
        pyg_error      error;
        if (request.speculator() && request.n_tokens() > n_own &&
            guard(&error, [&] {
                request.speculator()->learn(request.tokens.data() + n_own, request.n_tokens() - n_own);
            }) != PYG_OK) {
            request.stop_guessing();
        }
    }
}

// Keep the guesses that were right, drop the cells of the others, and count both. With the engine's lock held.
void Engine::settle_guesses(const Step & step) {
    for (const Slice & slice : step.slices) {
        Request &  request = request_of(slice.task);
        const auto n       = static_cast<uint32_t>(request.guesses.size());
        if (n == 0) {
            continue;
        }
        const uint32_t n_kept = scheduler_.keep_right_guesses(slice);
        if (const Speculator * const speculator = request.speculator()) {  // null if it failed meanwhile
            count(stats_.guesses, speculator->kind(), n, n_kept);
            request.count_guesses(speculator->kind(), n, n_kept);
        }
    }
}

}  // namespace pyg
