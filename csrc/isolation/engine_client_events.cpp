// Events from the engine's process, validated before use.
#include "boundary/handles.hpp"
#include "isolation/engine_client.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace {

using pyg::fail;

pyg::Failure malformed(const char * what) {
    return fail(PYG_ERR_ENGINE, "the engine's process sent malformed data (%s)", what);
}

// Reader of an event's payload.
class PayloadReader {
  public:
    PayloadReader(const char * data, size_t n) : data_(data), n_(n) {}

    template <class T>
    void read(T * out, size_t count) {
        const size_t n = count * sizeof(T);
        if (n > n_) {
            throw malformed("an event that is too short");
        }
        std::copy_n(data_, n, reinterpret_cast<char *>(out));  // for a count of 0, pointers may be null
        data_ += n;
        n_ -= n;
    }
    void read(pyg::LogprobRows & rows, size_t n, int32_t n_top) {
        if (n_top == 0) {
            return;
        }
        rows.resize(n, static_cast<size_t>(n_top));
        read(rows.logprobs.data(), rows.logprobs.size());
        read(rows.top_ids.data(), rows.top_ids.size());
        read(rows.top.data(), rows.top.size());
    }

  private:
    const char * data_;
    size_t       n_;
};

void require_valid(const pyg_request_state & state) {
    constexpr double LONG_S = 1e9;
    for (const double seconds : {state.queue_s, state.prefill_s, state.decode_s}) {
        if (!(seconds >= 0 && seconds < LONG_S)) {
            throw malformed("times");
        }
    }
    for (const int32_t n : {state.n_cached, state.n_prefilled, state.n_preemptions}) {
        if (n < 0) {
            throw malformed("counts");
        }
    }
    const pyg_guess_counts & guesses = state.guesses;
    if (guesses.n_accepted_forced > guesses.n_drafted_forced || guesses.n_accepted_lookup > guesses.n_drafted_lookup ||
        guesses.n_accepted_model > guesses.n_drafted_model) {
        throw malformed("counts");
    }
    if (state.finish < PYG_FINISH_NONE || state.finish > PYG_FINISH_ERROR) {
        throw malformed("an unknown finish reason");
    }
}

}  // namespace

namespace pyg {

void EngineClient::run() {
    std::string bytes;
    do {
        take_events(bytes);
    } while (sleep());
    take_events(bytes);  // sent before it exited
}

// Wait for the byte that announces an event. Return false at the end of the socket.
bool EngineClient::sleep() {
    if (!ring_->prepare_sleep()) {
        return true;
    }
    char wakes[64];
    for (;;) {
        const std::ptrdiff_t n = platform::receive(socket_, wakes, sizeof(wakes));
        if (n >= 0 || errno != EINTR) {
            return n > 0;
        }
    }
}

// `bytes` holds an incomplete event between calls.
void EngineClient::take_events(std::string & bytes) {
    constexpr size_t AT_ONCE = size_t{1} << 16;
    for (;;) {
        const size_t before = bytes.size();
        bytes.resize(before + AT_ONCE);
        const size_t n = ring_->read(bytes.data() + before, AT_ONCE);
        bytes.resize(before + n);
        if (n == 0) {
            return;
        }
        size_t done = 0;
        Event  event;
        while (bytes.size() - done >= sizeof(event)) {
            std::memcpy(&event, bytes.data() + done, sizeof(event));
            if (event.n_bytes > LONGEST_EVENT) {
                throw malformed("an event that is too long");
            }
            if (bytes.size() - done - sizeof(event) < event.n_bytes) {
                break;
            }
            const char * const data = bytes.data() + done + sizeof(event);
            switch (event.kind) {
            case Event::UPDATE:
                on_update(event.id, data, event.n_bytes);
                break;
            case Event::REPLY:
                on_reply(event, data);
                break;
            default:
                throw malformed("an unknown kind of event");
            }
            done += sizeof(event) + event.n_bytes;
        }
        bytes.erase(0, done);
    }
}

void EngineClient::on_update(uint64_t id, const char * data, size_t n) {
    std::shared_ptr<Entry> entry;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  found = requests_.find(id);
        if (found == requests_.end()) {
            return;  // it was never sent completely, or has ended here
        }
        entry = found->second;
    }
    Request &     request = *entry->request;
    PayloadReader payload(data, n);
    RequestUpdate update;
    payload.read(&update, 1);
    require_valid(update.state);
    if (update.n_tokens > UPDATE_TOKENS || update.n_prompt_rows > UPDATE_PROMPT_ROWS) {
        throw malformed("too many tokens");
    }
    std::vector<int32_t> tokens(update.n_tokens);
    LogprobRows          rows, prompt_rows;
    payload.read(tokens.data(), tokens.size());
    payload.read(rows, update.n_tokens, request.n_logprobs());
    payload.read(prompt_rows, update.n_prompt_rows, request.n_prompt_logprobs());
    pyg_error  error  = {};
    const bool failed = update.state.finish == PYG_FINISH_ERROR;
    if (failed) {
        payload.read(&error, 1);
        error.message[sizeof(error.message) - 1] = '\0';
        error.code                               = error.code < 0 ? error.code : PYG_ERR_ENGINE;
    }
    if (!entry->accept(tokens, rows, prompt_rows)) {
        throw malformed("invalid tokens");
    }
    if (update.state.finish != PYG_FINISH_NONE) {  // free its place in the queue before the caller sees the end
        std::lock_guard<std::mutex> lock(mutex_);
        requests_.erase(id);
        capacity_waiters_.notify(queue_capacity_locked());
    }
    request.mirror(update.state, tokens, rows, prompt_rows, failed ? &error : nullptr);
}

bool EngineClient::Entry::accept(const std::vector<int32_t> & tokens, const LogprobRows & rows,
                                 const LogprobRows & prompt_rows) {
    if (tokens.size() > n_tokens_left || prompt_rows.logprobs.size() > n_prompt_rows_left) {
        return false;
    }
    n_tokens_left -= tokens.size();
    n_prompt_rows_left -= prompt_rows.logprobs.size();
    return are_valid_ids(tokens) && are_valid_ids(rows.top_ids, -1) && are_valid_ids(prompt_rows.top_ids);
}

bool EngineClient::Entry::are_valid_ids(const std::vector<int32_t> & token_ids, int32_t least) const {
    return std::all_of(token_ids.begin(), token_ids.end(), [&](int32_t id) { return id >= least && id < n_vocab; });
}

void EngineClient::on_reply(const Event & event, const char * data) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto                  found = calls_.find(event.id);
    if (found == calls_.end()) {
        return;  // discarded
    }
    Call & call = found->second;
    call.n_waiting += event.n_bytes;
    if (call.n_waiting > call.max_bytes) {
        throw malformed("a response that is too long");
    }
    call.partial.append(data, event.n_bytes);
    if (event.flags & Event::MESSAGE_ENDS) {
        call.messages.emplace_back(std::exchange(call.partial, {}), (event.flags & Event::CALL_ENDS) != 0);
        replies_.notify_all();
    }
}

}  // namespace pyg
