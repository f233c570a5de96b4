#include "isolation/engine_client.hpp"

#include "boundary/handles.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace {

using pyg::fail;

void open_socket(int & ours, int & theirs) {
    if (!pyg::platform::open_socket_pair(ours, theirs)) {
        throw fail(PYG_ERR_ENGINE, "could not open a socket for the engine's process: %s", std::strerror(errno));
    }
}

}  // namespace

namespace pyg {

EngineClient::EngineClient(uint32_t n_parallel, uint32_t max_queue, int & memory, int & socket)
    : n_parallel_(n_parallel), max_queue_(max_queue) {
    memory = new_ring_buffer_memory();
    try {
        ring_.emplace(memory);
        open_socket(socket_, socket);
    } catch (...) {
        platform::close_descriptor(memory);
        throw;
    }
}

EngineClient::~EngineClient() { platform::close_socket(socket_); }

// --- requests -------------------------------------------------------------------------------------------------

std::shared_ptr<Request> EngineClient::submit(const Model & model, uint32_t n_ctx, const int32_t * prompt,
                                              int32_t n_prompt, const pyg_request_options & options, const char * bytes,
                                              size_t n_bytes) {
    pyg_request_options ours = options;
    ours.timeout_s           = -1;  // the engine enforces it
    ours.n_adapters          = 0;   // they are in its process
    const auto request       = std::make_shared<Request>(model, n_ctx, prompt, n_prompt, ours);
    uint64_t   id            = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        require_alive_locked();
        if (queue_capacity_locked() == 0) {
            throw queue_full(max_queue_);
        }
        id = next_id_++;
        request->become_mirror([client = weak_from_this(), id] {
            if (const auto alive = client.lock()) {
                try {
                    alive->send(FRAME_CANCEL, id, nullptr, 0, nullptr, 0);
                } catch (const Failure &) {  // the process has exited, and its requests have ended
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

void EngineClient::notify_when_queue_has_capacity(std::shared_ptr<Waker> waker, uint64_t tag) {
    std::lock_guard<std::mutex> lock(mutex_);
    capacity_waiters_.add(std::move(waker), tag, queue_capacity_locked());
}

// As in Engine: limits requests that have not ended, running or waiting. No limit once the process has exited, so that
// nothing waits for it.
size_t EngineClient::queue_capacity_locked() const {
    if (max_queue_ == 0 || requests_.empty() || exit_error_) {
        return SIZE_MAX;
    }
    const size_t limit = size_t{max_queue_} + n_parallel_;
    return limit - std::min(limit, requests_.size());
}

// --- calls ----------------------------------------------------------------------------------------------------

uint64_t EngineClient::call(const int32_t * numbers, uint32_t n_numbers, const char * bytes, size_t n_bytes,
                            size_t max_bytes) {
    uint64_t id = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        require_alive_locked();
        id                   = next_id_++;
        calls_[id].max_bytes = max_bytes;
    }
    try {
        send(PYG_FRAME_CALL, id, numbers, n_numbers, bytes, n_bytes);
    } catch (...) {
        discard(id);
        throw;
    }
    return id;
}

std::optional<std::string> EngineClient::reply(uint64_t id, double timeout_s, bool & last) {
    const auto                   deadline = deadline_after(timeout_s);
    std::unique_lock<std::mutex> lock(mutex_);
    const auto                   ready = [&] {
        const auto found = calls_.find(id);
        return exit_error_ || found == calls_.end() || !found->second.messages.empty();
    };
    if (deadline) {
        replies_.wait_until(lock, *deadline, ready);
    } else {
        replies_.wait(lock, ready);
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
    require_alive_locked();
    if (found == calls_.end()) {
        throw fail(PYG_ERR_INVALID_PARAMETER, "there is no such call");
    }
    return std::nullopt;
}

void EngineClient::discard(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.erase(id);
}

// --- sending --------------------------------------------------------------------------------------------------

void EngineClient::send(uint32_t kind, uint64_t id, const int32_t * numbers, uint32_t n_numbers, const char * bytes,
                        size_t n_bytes) {
    const Frame                 frame = {kind, n_numbers, id, n_bytes};
    std::lock_guard<std::mutex> lock(send_mutex_);
    send_all(&frame, sizeof(frame));
    send_all(numbers, n_numbers * sizeof(int32_t));
    send_all(bytes, n_bytes);
}

void EngineClient::send_all(const void * data, size_t n) {
    const char * next = static_cast<const char *>(data);
    while (n > 0) {
        const std::ptrdiff_t sent = platform::send_bytes(socket_, next, n);
        if (sent > 0) {
            next += sent;
            n -= static_cast<size_t>(sent);
        } else if (errno != EINTR) {
            throw fail(PYG_ERR_ENGINE, "the engine's process has exited");
        }
    }
}

// --- the end --------------------------------------------------------------------------------------------------

bool EngineClient::has_exited() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return exit_error_.has_value();
}

void EngineClient::close() {
    pyg_error closed;
    report(&closed, PYG_ERR_CLOSED, "the engine was closed");  // allocates nothing
    fail_all(closed);
    platform::shut_down(socket_);  // run() returns
}

void EngineClient::fail_all(const pyg_error & why) {
    std::unordered_map<uint64_t, std::shared_ptr<Entry>> ended;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!exit_error_) {
            exit_error_ = why;
        }
        ended.swap(requests_);
        capacity_waiters_.notify(queue_capacity_locked());
    }
    replies_.notify_all();
    for (const auto & [id, entry] : ended) {
        why.code == PYG_ERR_CLOSED ? entry->request->end(PYG_FINISH_CLOSED) : entry->request->end(why);
    }
}

void EngineClient::require_alive_locked() const {
    if (exit_error_) {
        throw fail(static_cast<pyg_code>(exit_error_->code), "%s", exit_error_->message);
    }
}

}  // namespace pyg
