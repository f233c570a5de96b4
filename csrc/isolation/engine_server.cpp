#include "isolation/engine_server.hpp"

#include "boundary/handles.hpp"
#include "boundary/native_threads.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace {

// Of a request that nobody watches, tokens are passed on in groups. A stop string is found at most so much later.
constexpr int32_t UNWATCHED_TOKENS = 8;

// The ring is full only while its reader, a native thread that does nothing else, gets no processor.
constexpr auto LOOK_FOR_ROOM_EVERY = std::chrono::microseconds(200);

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

Feed::Feed(int memory, int socket) : ring_(memory), socket_(socket) { ::close(memory); }

// --- in -------------------------------------------------------------------------------------------------------

bool Feed::next(Frame & frame, std::string & bytes) {
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

bool Feed::read(void * data, size_t n) {
    char * next = static_cast<char *>(data);
    while (n > 0) {
        const ssize_t got = recv(socket_, next, n, MSG_WAITALL);
        if (got > 0) {
            next += got;
            n -= static_cast<size_t>(got);
        } else if (got == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

void Feed::submit(pyg_engine * engine, uint64_t id, const int32_t * prompt, int32_t n_prompt,
                  const pyg_request_options & options) {
    const auto          deadline = deadline_after(options.timeout_s);
    pyg_request_options ours     = options;
    ours.waker                   = const_cast<pyg_waker *>(&waker_);
    ours.tag                     = id;
    auto             entry       = std::make_shared<Entry>();
    pyg_error        error;
    const pyg_status status = guard(&error, [&] { entry->request = submitted(engine, prompt, n_prompt, ours); });
    entry->min_tokens       = options.unwatched ? UNWATCHED_TOKENS : 1;
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
        News news                = {};
        news.state.finish        = PYG_FINISH_ERROR;
        news.state.stop_token_id = -1;
        std::string data;
        append(data, &news, 1);
        append(data, &error, 1);
        write_event({Event::NEWS, 0, id, data.size()}, data);
        return;
    }
    if (is_cancelled) {
        entry->request->cancel();
    }
    waker_.waker->expect();
    waker_.waker->tell(id);  // the first look arms it
}

void Feed::cancel(uint64_t id) {
    std::shared_ptr<Entry> entry;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (const auto arrived = arrived_.find(id); arrived != arrived_.end()) {
            arrived->second = true;
            return;
        }
        const auto found = entries_.find(id);
        if (found == entries_.end()) {
            return;  // it has ended meanwhile
        }
        entry = found->second;
    }
    entry->request->cancel();
}

// --- out ------------------------------------------------------------------------------------------------------

void Feed::run() {
    constexpr int32_t AT_ONCE = 64;
    uint64_t          tags[AT_ONCE];
    name_this_thread("pyggml-feed");
    for (;;) {
        const int32_t n = waker_.waker->take(first_deadline(), tags, AT_ONCE);
        for (int32_t i = 0; i < n; i++) {
            look(tags[i]);
        }
        look_at_overdue();
    }
}

// A request that still waits for its turn ends only when somebody looks at it.
void Feed::look_at_overdue() {
    std::vector<uint64_t> overdue;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  now = Clock::now();
        for (const auto & [id, entry] : entries_) {
            if (entry->deadline && *entry->deadline <= now) {
                entry->deadline.reset();  // if it is running, the engine ends it
                overdue.push_back(id);
            }
        }
    }
    for (const uint64_t id : overdue) {
        look(id);
    }
}

std::optional<Clock::time_point> Feed::first_deadline() const {
    std::optional<Clock::time_point> first;
    std::lock_guard<std::mutex>      lock(mutex_);
    for (const auto & [id, entry] : entries_) {
        if (entry->deadline && (!first || *entry->deadline < *first)) {
            first = entry->deadline;
        }
    }
    return first;
}

void Feed::look(uint64_t id) {
    std::shared_ptr<Entry> entry;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto                  found = entries_.find(id);
        if (found == entries_.end()) {
            return;
        }
        entry = found->second;
    }
    while (pass_on(id, *entry)) {}
    if (entry->end_sent) {  // not: has ended, which may be since that look, and somebody has to look again
        std::lock_guard<std::mutex> lock(mutex_);
        entries_.erase(id);
    }
}

// Sends what has come of a request; false: that was all so far.
bool Feed::pass_on(uint64_t id, Entry & entry) {
    const Request & request = *entry.request;
    int32_t         tokens[NEWS_TOKENS];
    int32_t         n = 0;
    News            news;
    pyg_error       error;
    // Takes nothing: the waker is told when there is enough to be worth a message.
    (void) entry.request->wait(entry.min_tokens, 0, tokens, 0, &n, &news.state, &error);
    if (!request.has_ended() && news.state.n_generated - news.state.n_read < entry.min_tokens) {
        return false;
    }
    (void) entry.request->wait(entry.min_tokens, 0, tokens, NEWS_TOKENS, &n, &news.state, &error);
    const int32_t n_prompt_rows = std::min<int32_t>(news.state.n_prompt_logprobs - entry.n_prompt_rows_sent,
                                                    static_cast<int32_t>(NEWS_PROMPT_ROWS));
    if (n_prompt_rows > 0 && entry.n_prompt_rows_sent + n_prompt_rows < news.state.n_prompt_logprobs) {
        news.state.finish = PYG_FINISH_NONE;  // the end comes with the last of them
    }
    if (n == 0 && n_prompt_rows == 0 && news.state.finish == PYG_FINISH_NONE) {
        return false;
    }
    news.n_tokens      = static_cast<uint32_t>(n);
    news.n_prompt_rows = static_cast<uint32_t>(n_prompt_rows);
    std::string data;
    append(data, &news, 1);
    append(data, tokens, news.n_tokens);
    append(data, rows_of(request, false, entry.n_sent, n, request.n_logprobs()));
    append(data, rows_of(request, true, entry.n_prompt_rows_sent, n_prompt_rows, request.n_prompt_logprobs()));
    if (news.state.finish == PYG_FINISH_ERROR) {
        append(data, &error, 1);
    }
    entry.n_sent += n;
    entry.n_prompt_rows_sent += n_prompt_rows;
    entry.end_sent = news.state.finish != PYG_FINISH_NONE;
    write_event({Event::NEWS, 0, id, data.size()}, data);
    return !entry.end_sent;
}

void Feed::reply(uint64_t id, const char * data, size_t n, bool last) {
    size_t done = 0;
    do {  // in pieces, between which tokens find their way
        const size_t   n_piece = std::min(n - done, REPLY_PIECE);
        const bool     is_end  = done + n_piece == n;
        const uint32_t flags =
            (is_end ? uint32_t{Event::MESSAGE_ENDS} : 0) | (is_end && last ? uint32_t{Event::CALL_ENDS} : 0);
        write_event({Event::REPLY, flags, id, n_piece}, std::string(data + done, n_piece));
        done += n_piece;
    } while (done < n);
}

void Feed::write_event(const Event & event, const std::string & data) {
    std::lock_guard<std::mutex> lock(write_mutex_);
    write_all(&event, sizeof(event));
    write_all(data.data(), data.size());
    ring_bell();
}

void Feed::write_all(const void * data, size_t n) {
    const char * next = static_cast<const char *>(data);
    while (n > 0) {
        const size_t put = ring_.put(next, n);
        next += put;
        n -= put;
        if (n > 0) {
            ring_bell();
            std::this_thread::sleep_for(LOOK_FOR_ROOM_EVERY);
        }
    }
}

void Feed::ring_bell() {
    if (ring_.takes_waking()) {
        const char bell = 1;
        (void) ::send(socket_, &bell, 1, MSG_DONTWAIT);  // if it cannot be rung, nobody is there
    }
}

}  // namespace pyg
