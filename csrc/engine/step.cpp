// One step of the engine: the forward pass and its results.
#include "boundary/log.hpp"
#include "engine/engine.hpp"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace {

// Prompts are computed in pieces that take about this long: beside streams, without them, and when nobody reads tokens
// as they come. Pieces with fewer tokens than this cost more than they are worth.
constexpr double   PIECE_BESIDE_S    = 0.1;
constexpr double   PIECE_ALONE_S     = 0.5;
constexpr double   PIECE_UNWATCHED_S = 2.0;
constexpr double   PIECE_ON_DEVICE_S = 0.25;  // at most, but a micro-batch in any case
constexpr uint32_t PIECE_MIN         = 64;

double seconds_since(pyg::Clock::time_point start) {
    return std::chrono::duration<double>(pyg::Clock::now() - start).count();
}

// Processor time of this thread so far.
double processor_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

namespace pyg {

llama_batch BatchArrays::of(const Step & step) {
    token_ids_.clear();
    positions_.clear();
    seq_ids_.clear();
    outputs_.clear();
    for (const Slice & slice : step.slices) {
        Task & task = *slice.task;
        for (uint32_t i = slice.first; i < slice.first + slice.n; i++) {
            token_ids_.push_back(task.tokens[i]);
            positions_.push_back(static_cast<llama_pos>(i));
            seq_ids_.push_back(&task.seq_id);
            outputs_.push_back(task.every_row);
        }
        outputs_.back() |= slice.ends();
    }
    n_seq_ids_.assign(token_ids_.size(), 1);
    return {static_cast<int32_t>(token_ids_.size()),
            token_ids_.data(),
            nullptr,
            positions_.data(),
            n_seq_ids_.data(),
            seq_ids_.data(),
            outputs_.data()};
}

// How many prompt tokens take about `seconds`. Until that is known, few if the step could not be interrupted.
uint32_t Engine::prompt_piece(double seconds) const {
    const uint32_t n_ubatch = llama_n_ubatch(context_->raw);
    if (s_per_prompt_token_ == 0) {
        return places_.any_on_device ? std::min(PIECE_MIN, n_ubatch) : n_ubatch;
    }
    const double n = std::min(seconds / s_per_prompt_token_, 1e6);
    return std::max(static_cast<uint32_t>(n), std::min(PIECE_MIN, n_ubatch));
}

// How many prompt tokens a step may compute. Without streams there is a limit too, because a cancel may have to wait
// for the step: the CPU sees it between two nodes of a graph, but only if most of the step is for that request, a
// device not before the end of the step. Where nobody reads tokens as they come the limit is wider: prompts that
// wait together are computed faster together, and answers that begin together fill the batches to their end. A
// single sequence that keeps nothing must not depend on timing, whatever computes it.
Scheduler::Pieces Engine::prompt_pieces() const {
    const uint32_t n_ubatch  = llama_n_ubatch(context_->raw);
    const bool     in_one_go = places_.any_on_device && !places_.pipelined;
    if (is_reproducible_) {
        const uint32_t most = in_one_go ? n_ubatch : UINT32_MAX;
        return {std::min(prompt_piece(PIECE_BESIDE_S), n_ubatch), most, most};
    }
    const uint32_t most  = in_one_go ? std::max(prompt_piece(PIECE_ON_DEVICE_S), n_ubatch) : UINT32_MAX;
    const auto     piece = [&](double seconds) { return std::min(prompt_piece(seconds), most); };
    return {std::min(prompt_piece(PIECE_BESIDE_S), n_ubatch), piece(PIECE_ALONE_S), piece(PIECE_UNWATCHED_S)};
}

// One forward pass, finished when it returns.
Engine::Outcome Engine::compute(const Step & step) {
    const llama_batch batch = batch_.of(step);
    watched_                = worth_interrupting(step);
    choose_threads(step.n_tokens);
    device_sampler_.prepare(is_greedy(step));
    LogHeld       words;
    const auto    start     = Clock::now();
    const double  own_start = processor_seconds();
    const int32_t answer    = pyg::compute(*context_, batch, llama_decode);
    const double  seconds   = seconds_since(start);
    interrupted_before_     = answer == ABORTED;
    if (tuner_ && answer == COMPUTED) {
        // A thread that waits for a device has no processor time, and lacks no core.
        const double own = places_.any_on_device ? seconds : processor_seconds() - own_start;
        tuner_->measured(step.n_tokens, seconds, own);
    } else if (tuner_) {
        tuner_->abandoned();
    }
    switch (answer) {
    case COMPUTED:
        break;
    case ABORTED:
        words.drop();  // they call it an error, but it was requested
        return Outcome::INTERRUPTED;
    case NO_ROOM:
        return Outcome::NO_ROOM;
    case NO_MEMORY:
        if (device_sampler_.is_on()) {
            device_sampler_.give_up();
            return Outcome::INTERRUPTED;
        }
        throw compute_failure(answer);
    default:
        throw compute_failure(answer);
    }
    count(step, seconds);
    scheduler_.computed(step);
    return Outcome::COMPUTED;
}

void Engine::choose_threads(uint32_t n_tokens) {
    if (!tuner_) {
        return;
    }
    const int32_t n = tuner_->threads(n_tokens);
    if (n == n_threads_) {
        return;
    }
    try {
        context_->set_threads(n, n);
        n_threads_ = n;
    } catch (const std::system_error &) {
        give_up_tuning();
    }
}

// No more threads can be had: those that there are go on.
void Engine::give_up_tuning() {
    tuner_.reset();
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.n_threads       = llama_n_threads(context_->raw);
    stats_.n_threads_batch = llama_n_threads_batch(context_->raw);
}

// The request without which the step is not worth finishing, because most of the step is for it. The others lose
// nothing: they get their tokens in the next step, and their state must survive the interruption.
const Request * Engine::worth_interrupting(const Step & step) const {
    const auto largest   = std::max_element(step.slices.begin(), step.slices.end(),
                                            [](const Slice & a, const Slice & b) { return a.n < b.n; });
    const bool alone     = step.slices.size() == 1;
    const bool for_it    = 2 * largest->n > step.n_tokens;
    const bool no_regret = cache_.rewinds() && !interrupted_before_;
    return for_it && (alone || no_regret) ? &request_of(largest->task) : nullptr;
}

// Whether nobody needs the logits of the step for more than to find the largest.
bool Engine::is_greedy(const Step & step) {
    return std::all_of(step.slices.begin(), step.slices.end(), [](const Slice & slice) {
        Request & request = request_of(slice.task);
        return !request.every_row && !request.wants_logprobs() && request.sampler()->is_plain_greedy();
    });
}

// Called by ggml between the nodes of a graph, on a compute thread.
bool Engine::should_abort(void * self) {
    const auto * engine = static_cast<Engine *>(self);
    return engine->closing_.load(std::memory_order_relaxed) ||
           (engine->watched_ && engine->watched_->interruption(Clock::now()));
}

void Engine::count(const Step & step, double seconds) {
    uint32_t n_prompt = 0;
    for (const Slice & slice : step.slices) {
        Request & request = request_of(slice.task);
        if (request.in_prefill()) {
            request.prefilled(slice.n);
            n_prompt += slice.n;
        }
    }
    if (n_prompt >= PIECE_MIN / 2) {
        const double measured = seconds / step.n_tokens;
        s_per_prompt_token_   = s_per_prompt_token_ == 0 ? measured : (s_per_prompt_token_ + measured) / 2;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (tuner_) {
        stats_.n_threads       = tuner_->n_threads();
        stats_.n_threads_batch = tuner_->n_threads_batch();
    }
    stats_.n_decode_steps++;
    stats_.n_prompt_tokens += n_prompt;
    (n_prompt > 0 ? stats_.prefill_s : stats_.decode_s) += seconds;
}

// Chooses a token for each request that is due, and ends those that are done. What fails for one request ends only
// that.
void Engine::hand_out(const Step & step) {
    const auto                             start = Clock::now();
    std::vector<std::pair<Request *, End>> ended;
    const auto                             note = [&](Request & request, const std::optional<End> & how) {
        if (how) {
            ended.emplace_back(&request, *how);
        }
    };
    choices_.clear();
    int32_t n_rows = 0;
    for (const Slice & slice : step.slices) {
        Request & request = request_of(slice.task);
        n_rows += static_cast<int32_t>(slice.n);
        std::optional<End> how;
        if (request.every_row) {
            how = end_of([&] { return take_rows(request, slice); });
        }
        if (!how && slice.ends()) {
            if (request.is_full()) {
                how = End{PYG_FINISH_LENGTH};  // max_tokens is 0
            } else {
                choices_.push_back({&request, n_rows - 1});
            }
        }
        note(request, how);
    }
    choose();
    uint64_t n_generated = 0;
    for (const Choice & choice : choices_) {
        const size_t n_before = choice.request->tokens.size();
        note(*choice.request, end_of([&] { return take(choice); }));
        n_generated += choice.request->tokens.size() - n_before;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.n_generated_tokens += n_generated;
    stats_.n_sampled_on_device = device_sampler_.n_sampled();
    stats_.sample_s += seconds_since(start);
    for (const auto & [request, how] : ended) {
        end(*request, how);
    }
    tell_room();
}

// How `body`, which may fail, ends a request, if at all.
template <class Body>
std::optional<Engine::End> Engine::end_of(Body && body) {
    std::optional<End> how;
    pyg_error          error;
    const pyg_status   status = guard(&error, [&] { how = body(); });
    return status == PYG_OK ? how : End{PYG_FINISH_ERROR, -1, error};
}

// With a temperature, a choice takes a good part of a millisecond, and they do not concern each other.
void Engine::choose() {
    double seconds = 0;
    if (!device_sampler_.is_on()) {
        seconds = s_per_choice_ * static_cast<double>(choices_.size());
        for (Choice & choice : choices_) {
            choice.logits = llama_get_logits_ith(context_->raw, choice.row);
        }
    }
    helpers_.each(choices_.size(), seconds, [&](size_t i) { choose(choices_[i]); });
    if (!choices_.empty()) {
        const auto add = [](double sum, const Choice & choice) { return sum + choice.seconds; };
        s_per_choice_  = std::accumulate(choices_.begin(), choices_.end(), 0.0, add) / choices_.size();
    }
}

// On any thread.
void Engine::choose(Choice & choice) {
    const auto start   = Clock::now();
    Request &  request = *choice.request;
    choice.status      = guard(&choice.error, [&] {
        choice.token_id =
            choice.logits ? request.sampler()->sample(choice.logits, n_vocab_) : device_sampler_.token(choice.row);
        if (request.wants_logprobs() && !request.is_stop(choice.token_id)) {
            request.note_logprobs(choice.logits, n_vocab_, choice.token_id);
        }
    });
    choice.seconds     = seconds_since(start);
}

// Why the request ends now, if at all.
std::optional<Engine::End> Engine::take(const Choice & choice) {
    if (choice.status != PYG_OK) {
        return End{PYG_FINISH_ERROR, -1, choice.error};
    }
    Request & request = *choice.request;
    if (request.is_stop(choice.token_id)) {
        return End{PYG_FINISH_STOP, choice.token_id};
    }
    const bool no_room_for_it = request.n_tokens() == n_ctx_;
    request.tokens.push_back(choice.token_id);
    request.publish(choice.token_id);
    return request.is_full() || no_room_for_it ? std::optional<End>(End{PYG_FINISH_LENGTH}) : std::nullopt;
}

// The rows of a piece of a prompt that wants all of them: for the logits themselves, or for the prompt's logprobs,
// after which the request continues like any other.
std::optional<Engine::End> Engine::take_rows(Request & request, const Slice & slice) {
    const auto    n_vocab = static_cast<size_t>(n_vocab_);
    const float * rows    = llama_get_logits(context_->raw);
    if (request.logits) {
        std::memcpy(request.logits + slice.first * n_vocab, rows, slice.n * n_vocab * sizeof(float));
        return request.n_pending() == 0 ? std::optional<End>(End{PYG_FINISH_LENGTH}) : std::nullopt;
    }
    request.note_prompt_logprobs(rows, n_vocab_, slice.first, slice.n);
    request.every_row = request.n_pending() > 0;
    return std::nullopt;
}

}  // namespace pyg
