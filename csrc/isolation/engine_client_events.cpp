// What comes from the process of the engine: data, checked before it is believed.
#include "boundary/handles.hpp"
#include "isolation/engine_client.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace {

using pyg::fail;

pyg::Failure nonsense(const char * what) {
    return fail(PYG_ERR_ENGINE, "the engine's process sent what makes no sense (%s)", what);
}

// Takes the parts of an event apart.
class Parts {
  public:
    Parts(const char * data, size_t n) : data_(data), n_(n) {}

    template <class T>
    void take(T * out, size_t count) {
        const size_t n = count * sizeof(T);
        if (n > n_) {
            throw nonsense("an event that is too short");
        }
        std::copy_n(data_, n, reinterpret_cast<char *>(out));  // of nothing, pointers may be null
        data_ += n;
        n_ -= n;
    }
    void take(pyg::LogprobRows & rows, size_t n, int32_t n_top) {
        if (n_top == 0) {
            return;
        }
        rows.resize(n, static_cast<size_t>(n_top));
        take(rows.logprobs.data(), rows.logprobs.size());
        take(rows.top_ids.data(), rows.top_ids.size());
        take(rows.top.data(), rows.top.size());
    }

  private:
    const char * data_;
    size_t       n_;
};

void require_sense(const pyg_request_state & state) {
    constexpr double LONG_S = 1e9;
    for (const double seconds : {state.queue_s, state.prefill_s, state.decode_s}) {
        if (!(seconds >= 0 && seconds < LONG_S)) {
            throw nonsense("times");
        }
    }
    for (const int32_t n : {state.n_cached, state.n_prefilled, state.n_preemptions}) {
        if (n < 0) {
            throw nonsense("counts");
        }
    }
    if (state.finish < PYG_FINISH_NONE || state.finish > PYG_FINISH_ERROR) {
        throw nonsense("an end that there is not");
    }
}

}  // namespace

namespace pyg {

void Relay::run() {
    std::string bytes;
    do {
        take_events(bytes);
    } while (sleep());
    take_events(bytes);  // its last words
}

// Waits for the byte that says that there is something; false at the end.
bool Relay::sleep() {
    if (!ring_->may_sleep()) {
        return true;
    }
    char bells[64];
    for (;;) {
        const ssize_t n = recv(socket_, bells, sizeof(bells), 0);
        if (n >= 0 || errno != EINTR) {
            return n > 0;
        }
    }
}

// `bytes`: the beginning of an event that has not come whole; left so.
void Relay::take_events(std::string & bytes) {
    constexpr size_t AT_ONCE = size_t{1} << 16;
    for (;;) {
        const size_t before = bytes.size();
        bytes.resize(before + AT_ONCE);
        const size_t n = ring_->take(bytes.data() + before, AT_ONCE);
        bytes.resize(before + n);
        if (n == 0) {
            return;
        }
        size_t done = 0;
        Event  event;
        while (bytes.size() - done >= sizeof(event)) {
            std::memcpy(&event, bytes.data() + done, sizeof(event));
            if (event.n_bytes > LONGEST_EVENT) {
                throw nonsense("an event that is too long");
            }
            if (bytes.size() - done - sizeof(event) < event.n_bytes) {
                break;
            }
            const char * const data = bytes.data() + done + sizeof(event);
            switch (event.kind) {
            case Event::NEWS:
                on_news(event.id, data, event.n_bytes);
                break;
            case Event::REPLY:
                on_reply(event, data);
                break;
            default:
                throw nonsense("an event of no kind");
            }
            done += sizeof(event) + event.n_bytes;
        }
        bytes.erase(0, done);
    }
}

void Relay::on_news(uint64_t id, const char * data, size_t n) {
    std::shared_ptr<Entry> entry;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  found = requests_.find(id);
        if (found == requests_.end()) {
            return;  // it was never sent whole, or has been ended here
        }
        entry = found->second;
    }
    Request & request = *entry->request;
    Parts     parts(data, n);
    News      news;
    parts.take(&news, 1);
    require_sense(news.state);
    if (news.n_tokens > NEWS_TOKENS || news.n_prompt_rows > NEWS_PROMPT_ROWS) {
        throw nonsense("too many tokens");
    }
    std::vector<int32_t> tokens(news.n_tokens);
    LogprobRows          rows, prompt_rows;
    parts.take(tokens.data(), tokens.size());
    parts.take(rows, news.n_tokens, request.n_logprobs());
    parts.take(prompt_rows, news.n_prompt_rows, request.n_prompt_logprobs());
    pyg_error  error    = {};
    const bool has_died = news.state.finish == PYG_FINISH_ERROR;
    if (has_died) {
        parts.take(&error, 1);
        error.message[sizeof(error.message) - 1] = '\0';
        error.code                               = error.code < 0 ? error.code : PYG_ERR_ENGINE;
    }
    if (!entry->takes(tokens, rows, prompt_rows)) {
        throw nonsense("tokens that cannot be");
    }
    if (news.state.finish != PYG_FINISH_NONE) {  // the room is free when the caller learns of the end
        std::lock_guard<std::mutex> lock(mutex_);
        requests_.erase(id);
        tell_room_locked();
    }
    request.mirror(news.state, tokens, rows, prompt_rows, has_died ? &error : nullptr);
}

bool Relay::Entry::takes(const std::vector<int32_t> & tokens, const LogprobRows & rows,
                         const LogprobRows & prompt_rows) {
    if (tokens.size() > n_tokens_left || prompt_rows.logprobs.size() > n_prompt_rows_left) {
        return false;
    }
    n_tokens_left -= tokens.size();
    n_prompt_rows_left -= prompt_rows.logprobs.size();
    return knows(tokens) && knows(rows.top_ids) && knows(prompt_rows.top_ids);
}

bool Relay::Entry::knows(const std::vector<int32_t> & token_ids) const {
    return std::all_of(token_ids.begin(), token_ids.end(), [&](int32_t id) { return id >= 0 && id < n_vocab; });
}

void Relay::on_reply(const Event & event, const char * data) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto                  found = calls_.find(event.id);
    if (found == calls_.end()) {
        return;  // forgotten
    }
    Call & call = found->second;
    call.n_waiting += event.n_bytes;
    if (call.n_waiting > call.max_bytes) {
        throw nonsense("an answer that is too long");
    }
    call.partial.append(data, event.n_bytes);
    if (event.flags & Event::MESSAGE_ENDS) {
        call.messages.emplace_back(std::exchange(call.partial, {}), (event.flags & Event::CALL_ENDS) != 0);
        replies_.notify_all();
    }
}

}  // namespace pyg
