// Sampling of a step's tokens: from rows of logits, or from what a device found in them.
#include "engine/engine.hpp"

#include <algorithm>
#include <numeric>

namespace {

// Copying rows of logits from a device one by one takes longer than copying all at once, if it is more than one in so
// many.
constexpr size_t ROWS_PER_FETCH = 4;

}  // namespace

namespace pyg {

// Return what the step's requests need of their logits. A few may need all of them, which are copied one by one.
LogitsNeed Engine::need_of(const Step & step) {
    LogitsNeed most  = LogitsNeed::LARGEST;
    size_t     n_all = 0;
    for (const Slice & slice : step.slices) {
        Request & request = request_of(slice.task);
        if (request.needs_all_logits) {
            return LogitsNeed::ALL;
        }
        const LogitsNeed need = request.needs_row() ? LogitsNeed::ALL : request.sampler()->need();
        n_all += need == LogitsNeed::ALL;
        most = std::max(most, need);
    }
    const bool few = ROWS_PER_FETCH * n_all <= step.slices.size();
    return most == LogitsNeed::ALL && few ? LogitsNeed::LIKELIEST : most;
}

// Sampling from a whole row takes up to milliseconds, so requests are sampled in parallel.
void Engine::sample_all() {
    const bool on_device = device_sampler_.is_on();
    unsampled_.clear();
    for (Sample & sample : samples_) {  // here, because the first access reorders the rows
        if (on_device) {
            sample.found = device_sampler_.row(sample.row);
        } else {
            sample.logits = logits_of_last(*context_, sample.row);
        }
        unsampled_.push_back(&sample);
    }
    process_logits();
    sample_each();
    if (on_device) {
        device_sampler_.count(samples_.size() - unsampled_.size());
        fetch_rows();
        process_logits();
        sample_each();
    }
}

// Sample those that have no token yet, and keep the ones that need their rows for it.
void Engine::sample_each() {
    const size_t n = unsampled_.size();
    if (n == 0) {
        return;
    }
    helpers_.for_each(n, s_per_sample_ * static_cast<double>(n), [&](size_t i) { sample(*unsampled_[i]); });
    const auto add = [](double sum, const Sample * sample) { return sum + sample->seconds; };
    s_per_sample_  = std::accumulate(unsampled_.begin(), unsampled_.end(), 0.0, add) / static_cast<double>(n);
    unsampled_.erase(std::remove_if(unsampled_.begin(), unsampled_.end(),
                                    [](const Sample * sample) { return sample->is_sampled(); }),
                     unsampled_.end());
}

// Any thread.
void Engine::sample(Sample & sample) {
    Request &        request = *sample.request;
    const auto       start   = Clock::now();
    pyg_error        error;
    const pyg_status status = guard(&error, [&] {
        if (!sample.logits) {
            sample_on_device(sample);
            return;
        }
        sample_rows(sample);
    });
    if (status != PYG_OK) {
        sample.failed = true;
        request.set_error(error);
    }
    sample.seconds = seconds_since(start);
}

// Sample from the rows of a request in order, for as long as its guesses are right.
void Engine::sample_rows(Sample & sample) const {
    Request &    request = *sample.request;
    const auto & guesses = request.guesses;
    for (float * row = sample.logits;; row += n_vocab_) {
        const int32_t token_id = sample_row(sample, row);
        const bool    is_stop  = request.is_stop(token_id);
        if (request.wants_logprobs() && !is_stop) {
            request.record_logprobs(row, n_vocab_, token_id);
        }
        if (is_stop || sample.n_right == guesses.size() || token_id != guesses[sample.n_right]) {
            sample.token_id = token_id;
            return;
        }
        sample.n_right++;
    }
}

// Sample from what the device found. Leaves the sample without a token if that takes the row.
void Engine::sample_on_device(Sample & sample) const {
    thread_local Shortlist shortlist;
    TokenSampler &         sampler = *sample.request->sampler();
    if (sample.request->needs_row()) {
        return;
    }
    if (sampler.need() == LogitsNeed::LARGEST) {
        sample.token_id = device_sampler_.token(sample.found);
    } else if (device_sampler_.shortlist(sample.found, shortlist)) {
        sample.token_id = sampler.sample(shortlist).value_or(-1);
    }
}

// Copy the rows of logits that are needed from the device. Rows of a step of several micro-batches are no longer there:
// these requests decode their token again, in a step of one.
void Engine::fetch_rows() {
    const auto is_lost = [&](Sample * sample) {
        const bool fetched = device_sampler_.fetch(sample->row, sample->found, n_rows_);
        sample->logits     = fetched ? llama_get_logits_ith(context_->raw, sample->row) : nullptr;
        return !fetched;
    };
    unsampled_.erase(std::remove_if(unsampled_.begin(), unsampled_.end(), is_lost), unsampled_.end());
}

// Decode the last token again of requests without a sample.
void Engine::decode_again(const Step & step) {
    const bool decoded_only = std::exchange(only_decode_, false);
    if (std::all_of(samples_.begin(), samples_.end(), [](const Sample & each) { return each.is_sampled(); })) {
        return;
    }
    for (const Slice & slice : step.slices) {
        const auto sample = std::find_if(samples_.begin(), samples_.end(), [&](const Sample & each) {
            return each.request == slice.task.get() && !each.is_sampled();
        });
        if (sample != samples_.end()) {
            only_decode_ = true;
            scheduler_.decode_again(slice.task);
        }
    }
    if (only_decode_ && decoded_only) {  // the row would be lost again; of streams, until there is no gap between them
        scheduler_.n_per_stream() ? device_sampler_.postpone() : device_sampler_.disable();
    }
}

}  // namespace pyg
