#include "isolation/relay.hpp"

#include "boundary/handles.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace {

using pyg::fail;

#if defined(MSG_NOSIGNAL)
constexpr int NO_SIGNAL = MSG_NOSIGNAL;
#else
constexpr int NO_SIGNAL = 0;  // Python ignores SIGPIPE
#endif

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
        std::memcpy(static_cast<void *>(out), data_, n);
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

// Two ends, closed on exec.
void open_socket(int & ours, int & theirs) {
    int ends[2];
#if defined(SOCK_CLOEXEC)  // another thread may start a program at any time
    constexpr int KIND = SOCK_STREAM | SOCK_CLOEXEC;
#else
    constexpr int KIND = SOCK_STREAM;
#endif
    if (socketpair(AF_UNIX, KIND, 0, ends) != 0) {
        throw fail(PYG_ERR_ENGINE, "could not open a socket for the engine's process: %s", std::strerror(errno));
    }
    for (const int end : ends) {
        fcntl(end, F_SETFD, FD_CLOEXEC);
    }
    ours   = ends[0];
    theirs = ends[1];
}

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

Relay::Relay(uint32_t n_parallel, uint32_t max_queue, int & memory, int & socket)
    : n_parallel_(n_parallel), max_queue_(max_queue) {
    memory = new_ring_memory();
    try {
        ring_.emplace(memory);
        open_socket(socket_, socket);
    } catch (...) {
        ::close(memory);
        throw;
    }
}

Relay::~Relay() { ::close(socket_); }

// --- listening ------------------------------------------------------------------------------------------------

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

// --- requests -------------------------------------------------------------------------------------------------

std::shared_ptr<Request> Relay::submit(const Model & model, uint32_t n_ctx, const int32_t * prompt, int32_t n_prompt,
                                       const pyg_request_options & options, const char * bytes, size_t n_bytes) {
    pyg_request_options ours = options;
    ours.timeout_s           = -1;  // the engine keeps it
    const auto request       = std::make_shared<Request>(model, n_ctx, prompt, n_prompt, ours);
    uint64_t   id            = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        require_there_locked();
        if (n_places_locked() == 0) {
            throw queue_full(max_queue_);
        }
        id = next_id_++;
        request->become_mirror([relay = weak_from_this(), id] {
            if (const auto alive = relay.lock()) {
                try {
                    alive->send(FRAME_CANCEL, id, nullptr, 0, nullptr, 0);
                } catch (const Failure &) {  // the process is gone, and so is the request
                }
            }
        });
        const size_t n_prompt_rows = request->n_prompt_logprobs() > 0 ? request->n_prompt - 1 : 0;
        requests_.emplace(id, std::make_shared<Entry>(Entry{request, model.n_vocab(),
                                                            static_cast<size_t>(request->max_tokens), n_prompt_rows}));
    }
    try {
        send(PYG_FRAME_SUBMIT, id, prompt, static_cast<uint32_t>(n_prompt), bytes, n_bytes);
    } catch (...) {
        std::lock_guard<std::mutex> lock(mutex_);
        requests_.erase(id);
        throw;
    }
    return request;
}

void Relay::ask_for_room(std::shared_ptr<Waker> waker, uint64_t tag) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (n_places_locked() == 0 && !gone_) {
        room_askers_.emplace_back(std::move(waker), tag);
    } else {
        waker->tell(tag);
    }
}

// As the engine counts: what has not ended is computed or waits.
size_t Relay::n_places_locked() const {
    if (max_queue_ == 0 || requests_.empty()) {
        return SIZE_MAX;
    }
    const size_t n_places = size_t{max_queue_} + n_parallel_;
    return n_places - std::min(n_places, requests_.size());
}

void Relay::tell_room_locked() {
    const size_t n_told = gone_ ? room_askers_.size() : std::min(n_places_locked(), room_askers_.size());
    for (size_t i = 0; i < n_told; i++) {
        room_askers_[i].first->tell(room_askers_[i].second);
    }
    room_askers_.erase(room_askers_.begin(), room_askers_.begin() + static_cast<std::ptrdiff_t>(n_told));
}

// --- calls ----------------------------------------------------------------------------------------------------

uint64_t Relay::call(const int32_t * numbers, uint32_t n_numbers, const char * bytes, size_t n_bytes,
                     size_t max_bytes) {
    uint64_t id = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        require_there_locked();
        id                   = next_id_++;
        calls_[id].max_bytes = max_bytes;
    }
    try {
        send(PYG_FRAME_CALL, id, numbers, n_numbers, bytes, n_bytes);
    } catch (...) {
        forget(id);
        throw;
    }
    return id;
}

std::optional<std::string> Relay::reply(uint64_t id, double timeout_s, bool & last) {
    const auto                   give_up = deadline_after(timeout_s);
    std::unique_lock<std::mutex> lock(mutex_);
    const auto                   news = [&] {
        const auto found = calls_.find(id);
        return gone_ || found == calls_.end() || !found->second.messages.empty();
    };
    if (give_up) {
        replies_.wait_until(lock, *give_up, news);
    } else {
        replies_.wait(lock, news);
    }
    const auto found = calls_.find(id);
    if (found != calls_.end() && !found->second.messages.empty()) {
        auto [message, is_last] = std::move(found->second.messages.front());
        found->second.messages.pop_front();
        found->second.n_waiting -= message.size();
        last = is_last;
        if (is_last) {
            calls_.erase(found);
        }
        return std::move(message);
    }
    require_there_locked();
    if (found == calls_.end()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "there is no such call");
    }
    return std::nullopt;
}

void Relay::forget(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.erase(id);
}

// --- sending --------------------------------------------------------------------------------------------------

void Relay::send(uint32_t kind, uint64_t id, const int32_t * numbers, uint32_t n_numbers, const char * bytes,
                 size_t n_bytes) {
    const Frame                 frame = {kind, n_numbers, id, n_bytes};
    std::lock_guard<std::mutex> lock(send_mutex_);
    send_all(&frame, sizeof(frame));
    send_all(numbers, n_numbers * sizeof(int32_t));
    send_all(bytes, n_bytes);
}

void Relay::send_all(const void * data, size_t n) {
    const char * next = static_cast<const char *>(data);
    while (n > 0) {
        const ssize_t sent = ::send(socket_, next, n, NO_SIGNAL);
        if (sent > 0) {
            next += sent;
            n -= static_cast<size_t>(sent);
        } else if (errno != EINTR) {
            throw fail(PYG_ERR_ENGINE, "the engine's process is gone");
        }
    }
}

// --- the end --------------------------------------------------------------------------------------------------

bool Relay::is_gone() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return gone_.has_value();
}

void Relay::lose(const pyg_error & why) { end_all(PYG_FINISH_ERROR, &why); }

void Relay::close() {
    pyg_error closed;
    report(&closed, fail(PYG_ERR_CLOSED, "the engine was closed"));
    end_all(PYG_FINISH_CLOSED, &closed);
    shutdown(socket_, SHUT_RDWR);  // run() returns
}

void Relay::end_all(pyg_finish finish, const pyg_error * why) {
    std::unordered_map<uint64_t, std::shared_ptr<Entry>> ended;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!gone_) {
            gone_ = *why;
        }
        ended.swap(requests_);
        tell_room_locked();
    }
    replies_.notify_all();
    for (const auto & [id, entry] : ended) {
        finish == PYG_FINISH_ERROR ? entry->request->end(*why) : entry->request->end(finish);
    }
}

void Relay::require_there_locked() const {
    if (gone_) {
        throw fail(static_cast<pyg_code>(gone_->code), "%s", gone_->message);
    }
}

}  // namespace pyg
