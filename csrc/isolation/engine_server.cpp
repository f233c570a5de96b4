#include "isolation/engine_server.hpp"

#include "boundary/handles.hpp"
#include "platform/platform.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace {

// Tokens per update of a request that prefers throughput. A stop string is found at most this much later.
constexpr int32_t THROUGHPUT_TOKENS = 8;

// The ring buffer is full only while its reader, a native thread with no other work, gets no core.
constexpr auto POLL_INTERVAL = std::chrono::microseconds(200);

template <class T>
void append(std::string & bytes, const T * data, size_t n) {
    bytes.append(reinterpret_cast<const char *>(data), n * sizeof(T));
}

void append(std::string & bytes, const pyg::LogprobRows & rows) {
    append(bytes, rows.logprobs.data(), rows.logprobs.size());
    append(bytes, rows.top_ids.data(), rows.top_ids.size());
    append(bytes, rows.top.data(), rows.top.size());
}

// Rows [first, first + n).
pyg::LogprobRows rows_of(const pyg::Request & request, bool of_prompt, int32_t first, int32_t n, int32_t n_top) {
    pyg::LogprobRows rows;
    if (n_top > 0 && n > 0) {
        rows.resize(static_cast<size_t>(n), static_cast<size_t>(n_top));
        request.copy_logprobs(of_prompt, first, n, rows.logprobs.data(), rows.top_ids.data(), rows.top.data());
    }
    return rows;
}

}  // namespace

namespace pyg {

EngineServer::EngineServer(int memory, int socket) : ring_(memory), socket_(socket) {
    platform::close_descriptor(memory);
}

// --- in -------------------------------------------------------------------------------------------------------

bool EngineServer::next(Frame & frame, std::string & bytes) {
    for (;;) {
        if (!read(&frame, sizeof(frame))) {
            return false;
        }
        bytes.resize(frame.n_numbers * sizeof(int32_t) + frame.n_bytes);
        if (!read(bytes.data(), bytes.size())) {
            return false;
        }
        if (frame.kind == FRAME_CANCEL) {
            cancel(frame.id);
            continue;
        }
        if (frame.kind == PYG_FRAME_SUBMIT) {
            std::lock_guard<std::mutex> lock(mutex_);
            arrived_.emplace(frame.id, false);
        }
        return true;
    }
}

bool EngineServer::read(void * data, size_t n) {
    char * next = static_cast<char *>(data);
    while (n > 0) {
        const std::ptrdiff_t got = platform::receive_all(socket_, next, n);
        if (got > 0) {
            next += got;
            n -= static_cast<size_t>(got);
        } else if (got == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

void EngineServer::submit(pyg_engine * engine, uint64_t id, const int32_t * prompt, int32_t n_prompt,
                          const pyg_request_options & options) {
    const auto          deadline = deadline_after(options.timeout_s);
    pyg_request_options ours     = options;
    ours.waker                   = const_cast<pyg_waker *>(&waker_);
    ours.tag                     = id;
    auto             entry       = std::make_shared<Entry>();
    pyg_error        error;
    const pyg_status status = guard(&error, [&] { entry->request = submit_request(engine, prompt, n_prompt, ours); });
    entry->min_tokens       = options.prefer_throughput ? THROUGHPUT_TOKENS : 1;
    entry->deadline         = deadline;

    bool is_cancelled = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  arrived = arrived_.find(id);
        is_cancelled                        = arrived != arrived_.end() && arrived->second;
        arrived_.erase(id);
        if (status == PYG_OK) {
            entries_.emplace(id, entry);
        }
    }
    if (status != PYG_OK) {
        send_error(id, error);
        return;
    }
    if (is_cancelled) {
        entry->request->cancel();
    }
    waker_.object->reserve();
    waker_.object->wake(id);  // the first poll arms it
}

void EngineServer::refuse(uint64_t id, const pyg_error & why) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        arrived_.erase(id);
    }
    send_error(id, why);
}

void EngineServer::send_error(uint64_t id, const pyg_error & error) {
    RequestUpdate update       = {};
    update.state.finish        = PYG_FINISH_ERROR;
    update.state.stop_token_id = -1;
    std::string data;
    append(data, &update, 1);
    append(data, &error, 1);
    write_event({Event::UPDATE, 0, id, data.size()}, data);
}

void EngineServer::cancel(uint64_t id) {
    std::shared_ptr<Entry> entry;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (const auto arrived = arrived_.find(id); arrived != arrived_.end()) {
            arrived->second = true;
            return;
        }
        const auto found = entries_.find(id);
        if (found == entries_.end()) {
            return;  // it has ended
        }
        entry = found->second;
    }
    entry->request->cancel();
}

// --- out ------------------------------------------------------------------------------------------------------

void EngineServer::run() {
    constexpr int32_t AT_ONCE = 64;
    uint64_t          tags[AT_ONCE];
    platform::name_this_thread("pyggml-server");
    for (;;) {
        const int32_t n = waker_.object->take(first_deadline(), tags, AT_ONCE);
        for (int32_t i = 0; i < n; i++) {
            poll_request(tags[i]);
        }
        poll_expired();
    }
}

// Poll requests whose deadline has passed: a queued request ends only when it is polled.
void EngineServer::poll_expired() {
    std::vector<uint64_t> expired;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  now = Clock::now();
        for (const auto & [id, entry] : entries_) {
            if (entry->deadline && *entry->deadline <= now) {
                entry->deadline.reset();  // a running one is ended by the engine
                expired.push_back(id);
            }
        }
    }
    for (const uint64_t id : expired) {
        poll_request(id);
    }
}

std::optional<Clock::time_point> EngineServer::first_deadline() const {
    std::optional<Clock::time_point> first;
    std::lock_guard<std::mutex>      lock(mutex_);
    for (const auto & [id, entry] : entries_) {
        if (entry->deadline && (!first || *entry->deadline < *first)) {
            first = entry->deadline;
        }
    }
    return first;
}

void EngineServer::poll_request(uint64_t id) {
    std::shared_ptr<Entry> entry;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  found = entries_.find(id);
        if (found == entries_.end()) {
            return;
        }
        entry = found->second;
    }
    while (forward(id, *entry)) {}
    if (entry->end_sent) {  // not has_ended(): it may have ended after the last poll
        std::lock_guard<std::mutex> lock(mutex_);
        entries_.erase(id);
    }
}

// Send the next update of a request. Return false if there is nothing more to send.
bool EngineServer::forward(uint64_t id, Entry & entry) {
    const Request & request = *entry.request;
    int32_t         tokens[UPDATE_TOKENS];
    int32_t         n = 0;
    RequestUpdate   update;
    pyg_error       error;
    // Reads no tokens: the waker is woken when there are enough for an update.
    (void) entry.request->wait(entry.min_tokens, 0, tokens, 0, &n, &update.state, &error);
    if (!request.has_ended() && update.state.n_generated - update.state.n_read < entry.min_tokens) {
        return false;
    }
    (void) entry.request->wait(entry.min_tokens, 0, tokens, UPDATE_TOKENS, &n, &update.state, &error);
    const int32_t n_prompt_rows = std::min<int32_t>(update.state.n_prompt_logprobs - entry.n_prompt_rows_sent,
                                                    static_cast<int32_t>(UPDATE_PROMPT_ROWS));
    if (n_prompt_rows > 0 && entry.n_prompt_rows_sent + n_prompt_rows < update.state.n_prompt_logprobs) {
        update.state.finish = PYG_FINISH_NONE;  // the last update carries the end
    }
    if (n == 0 && n_prompt_rows == 0 && update.state.finish == PYG_FINISH_NONE) {
        return false;
    }
    update.n_tokens      = static_cast<uint32_t>(n);
    update.n_prompt_rows = static_cast<uint32_t>(n_prompt_rows);
    std::string data;
    append(data, &update, 1);
    append(data, tokens, update.n_tokens);
    append(data, rows_of(request, false, entry.n_sent, n, request.n_logprobs()));
    append(data, rows_of(request, true, entry.n_prompt_rows_sent, n_prompt_rows, request.n_prompt_logprobs()));
    if (update.state.finish == PYG_FINISH_ERROR) {
        append(data, &error, 1);
    }
    entry.n_sent += n;
    entry.n_prompt_rows_sent += n_prompt_rows;
    entry.end_sent = update.state.finish != PYG_FINISH_NONE;
    write_event({Event::UPDATE, 0, id, data.size()}, data);
    return !entry.end_sent;
}

void EngineServer::reply(uint64_t id, const char * data, size_t n, bool last) {
    size_t done = 0;
    do {  // in chunks, so that tokens can be sent in between
        const size_t   n_chunk = std::min(n - done, REPLY_CHUNK);
        const bool     is_end  = done + n_chunk == n;
        const uint32_t flags =
            (is_end ? uint32_t{Event::MESSAGE_ENDS} : 0) | (is_end && last ? uint32_t{Event::CALL_ENDS} : 0);
        write_event({Event::REPLY, flags, id, n_chunk}, std::string(data + done, n_chunk));
        done += n_chunk;
    } while (done < n);
}

void EngineServer::write_event(const Event & event, const std::string & data) {
    std::lock_guard<std::mutex> lock(write_mutex_);
    write_all(&event, sizeof(event));
    write_all(data.data(), data.size());
    wake_reader();
}

void EngineServer::write_all(const void * data, size_t n) {
    const char * next = static_cast<const char *>(data);
    while (n > 0) {
        const size_t n_written = ring_.write(next, n);
        next += n_written;
        n -= n_written;
        if (n > 0) {
            wake_reader();
            std::this_thread::sleep_for(POLL_INTERVAL);
        }
    }
}

void EngineServer::wake_reader() {
    if (ring_.take_wake_request()) {
        const char wake = 1;
        (void) platform::try_send(socket_, &wake, 1);  // if sending fails, the parent has exited
    }
}

}  // namespace pyg
