#include "isolation/engine_client.hpp"

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
    waker->expect();
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
    report(&closed, PYG_ERR_CLOSED, "the engine was closed");  // without memory of its own
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
