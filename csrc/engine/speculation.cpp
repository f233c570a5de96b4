// Guessed tokens in the engine's steps.
//
// A request's guesses are computed with its last token, each with a row of logits. Its sampler then samples from these
// rows in order, for as long as the guesses equal what it samples, so it samples what it would without guesses: with
// batch-invariant kernels the rows have the same bits, and the random generator and the grammar advance only by tokens
// that are kept. The cells of the other guesses are dropped.
#include "engine/engine.hpp"
#include "engine/speculation/guess_counts.hpp"

#include <algorithm>

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
    const auto decodes = [](const Slice & slice) {
        return slice.n == 1 && slice.reaches_end() && !request_of(slice.task).in_prefill();
    };
    const auto n_slices_that = [&](const auto & condition) {
        return static_cast<uint32_t>(std::count_if(step.slices.begin(), step.slices.end(), condition));
    };
    uint32_t         n_rows    = n_slices_that([](const Slice & slice) { return slice.reaches_end(); });
    const uint32_t   n_decodes = n_slices_that(decodes);
    Speculator::Load load      = {n_decodes, static_cast<double>(n_decodes)};
    for (const Slice & slice : step.slices) {
        Request & request = request_of(slice.task);
        if (!decodes(slice) || !request.speculator() || n_rows >= n_rows_max_) {
            continue;
        }
        const size_t n_max = std::min<size_t>(most_guesses(request), n_rows_max_ - n_rows);
        pyg_error    error;
        if (guard(&error, [&] {
                request.speculator()->choose(request.tokens, n_max, column_costs_, load, guesses_);
            }) != PYG_OK) {
            request.stop_guessing();
            continue;
        }
        if (!guesses_.empty()) {
            std::lock_guard<std::mutex> lock(mutex_);
            scheduler_.add_guesses(step, request, guesses_);
            n_rows += static_cast<uint32_t>(request.guesses.size());
        }
    }
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
        if (request.speculator() && request.n_tokens() > n_own) {
            request.speculator()->learn(request.tokens.data() + n_own, request.n_tokens() - n_own);
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
        count(stats_.guesses, request.speculator()->kind(), n, n_kept);
        request.count_guesses(request.speculator()->kind(), n, n_kept);
    }
}

}  // namespace pyg
