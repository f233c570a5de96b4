#include "engine/logits_callback.hpp"

#include "engine/engine.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace {

thread_local const void * t_engine_of_callback = nullptr;

// Samplers sort and exponentiate the logits; NaN and +infinity break both.
void require_processed(const std::vector<float> & row) {
    if (!std::all_of(row.begin(), row.end(), [](float logit) { return logit < INFINITY; })) {
        throw pyg::fail(PYG_ERR_INVALID_PARAMETER, "a logits processor left NaN or +infinity among the logits");
    }
    if (pyg::maximum(row.data(), static_cast<int32_t>(row.size())) == -INFINITY) {
        throw pyg::fail(PYG_ERR_INVALID_PARAMETER, "the logits processors leave no token to choose");
    }
}

}  // namespace

namespace pyg {

std::mutex        RunningCallback::mutex_;
RunningCallback * RunningCallback::first_ = nullptr;

RunningCallback::RunningCallback(const void * engine, const Model & model) noexcept : engine_(engine), model_(&model) {
    std::lock_guard<std::mutex> lock(mutex_);
    next_                = std::exchange(first_, this);
    t_engine_of_callback = engine_;
}

RunningCallback::~RunningCallback() {
    std::lock_guard<std::mutex> lock(mutex_);
    RunningCallback **          link = &first_;
    while (*link != this) {
        link = &(*link)->next_;
    }
    *link                = next_;
    t_engine_of_callback = nullptr;
}

double RunningCallback::seconds_of(const Model & model) {
    std::lock_guard<std::mutex> lock(mutex_);
    Clock::duration             longest{0};
    for (const RunningCallback * each = first_; each; each = each->next_) {
        longest = each->model_ == &model ? std::max(longest, Clock::now() - each->since_) : longest;
    }
    return std::chrono::duration<double>(longest).count();
}

const void * RunningCallback::engine() { return t_engine_of_callback; }

void RunningCallback::require_not_of(const void * engine) {
    if (engine && engine == t_engine_of_callback) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a logits processor runs while its engine waits for it, so it cannot use "
                                              "that engine: use another model, or do this outside the processor");
    }
}

// Let the callbacks change the rows of their requests, all rows of a callback in one call.
void Engine::process_logits() {
    callback_rows_.clear();
    processed_.clear();
    for (Sample * sample : unsampled_) {
        LogitsProcessor * const processor = sample->request->logits_processor();
        if (processor && sample->logits) {
            const std::vector<int32_t> & tokens = sample->request->tokens;
            callback_rows_.push_back({processor->id, tokens.data(), static_cast<int32_t>(tokens.size()), n_vocab_,
                                      sample->logits, processor->row.data(), -1, false});
            processed_.push_back(sample);
        }
    }
    for (size_t first = 0, end = 0; first < processed_.size(); first = end) {
        const auto callback = processed_[first]->request->logits_processor()->callback;
        while (end < processed_.size() && processed_[end]->request->logits_processor()->callback == callback) {
            end++;
        }
        const RunningCallback running(this, *context_->model);
        callback(&callback_rows_[first], static_cast<int32_t>(end - first));
    }
    for (size_t i = 0; i < processed_.size(); i++) {
        Sample & sample     = *processed_[i];
        sample.is_processed = true;
        sample.chosen       = callback_rows_[i].token_id;
        if (!callback_rows_[i].is_done) {
            pyg_error error;
            report(&error, PYG_ERR_INVALID_PARAMETER, "a logits processor failed");
            sample.request->set_error(error);
            sample.failed = true;
        }
    }
    unsampled_.erase(std::remove_if(unsampled_.begin(), unsampled_.end(),
                                    [](const Sample * sample) { return sample->is_sampled(); }),
                     unsampled_.end());
}

// Sample from a row of logits, or from what the request's processor made of it. Any thread.
int32_t Engine::sample_row(Sample & sample, float * logits) const {
    Request &        request  = *sample.request;
    TokenSampler &   sampler  = *request.sampler();
    const int32_t    n_top    = request.n_logprobs();
    Logprobs * const logprobs = request.processed_logprobs();
    if (!sample.is_processed) {
        return sampler.sample(logits, n_vocab_, n_top, logprobs);
    }
    std::vector<float> & row = request.logits_processor()->row;
    if (sample.chosen < 0) {
        require_processed(row);
        return sampler.sample(row.data(), n_vocab_, n_top, logprobs);
    }
    if (sample.chosen >= n_vocab_) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "a logits processor chose token %d, which is outside the vocabulary",
                   sample.chosen);
    }
    return sampler.take(sample.chosen, row.data(), n_vocab_, n_top, logprobs);
}

}  // namespace pyg
