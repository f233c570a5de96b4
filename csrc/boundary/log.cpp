#include "boundary/log.hpp"

#include "boundary/guard.hpp"

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <string>

namespace {

struct Line {
    int32_t     level;
    std::string text;
};

constexpr size_t MAX_WAITING = 4096;  // lines; more displace the oldest

std::atomic<int32_t> g_level{PYG_LOG_OFF};
std::atomic<size_t>  g_n_waiting{0};
std::mutex           g_mutex;
std::deque<Line>     g_waiting;

// Upstream logs some lines in parts (GGML_LOG_LEVEL_CONT continues the last one), so each thread collects until a
// newline.
thread_local std::string t_partial;
thread_local int32_t     t_partial_level = PYG_LOG_DEBUG;

thread_local int              t_muted = 0;
thread_local pyg::LogBuffer * t_held  = nullptr;

// Warnings of things that are as they should be. LLM itself warns, once, of contexts beyond the training length, which
// upstream tells for each context and each plan. Contexts for embeddings return those of tokens, which are pooled
// later.
bool is_harmless(const char * text) {
    return std::strstr(text, "> n_ctx_train") || std::strstr(text, "model default pooling_type is");
}

// Upstream tells each tensor and buffer at its level INFO, hundreds of lines for a model: details, to a program.
int32_t level_of(ggml_log_level level, const char * text) {
    switch (level) {
    case GGML_LOG_LEVEL_WARN:
        return is_harmless(text) ? PYG_LOG_DEBUG : PYG_LOG_WARN;
    case GGML_LOG_LEVEL_ERROR:
        return PYG_LOG_ERROR;
    case GGML_LOG_LEVEL_CONT:
        return t_partial_level;
    default:
        return PYG_LOG_DEBUG;
    }
}

void keep(int32_t level, const std::string & text) {
    if (t_held) {
        t_held->add(level, text);
        return;
    }
    std::lock_guard<std::mutex> lock(g_mutex);
    if (g_waiting.size() == MAX_WAITING) {
        g_waiting.pop_front();
    }
    g_waiting.push_back({level, text});
    g_n_waiting.store(g_waiting.size(), std::memory_order_relaxed);
}

void say(int32_t level, const std::string & text) {
    if (text.empty()) {
        return;
    }
    if (level >= PYG_LOG_WARN) {
        pyg::add_engine_error(text.c_str());
    }
    if (!t_muted && level >= g_level.load(std::memory_order_relaxed)) {
        keep(level, text);
    }
}

void hear(int32_t own_level, const char * text) {
    for (const char * rest = text; *rest;) {
        const char * end = std::strchr(rest, '\n');
        if (!end) {
            t_partial += rest;
            return;
        }
        t_partial.append(rest, end);
        say(own_level, t_partial);
        t_partial.clear();
        rest = end + 1;
    }
}

}  // namespace

namespace pyg {

// Also called from destructors: a line that cannot be allocated is lost.
void on_engine_log(ggml_log_level level, const char * text, void *) noexcept {
    const int32_t kept_from = t_muted ? PYG_LOG_OFF : g_level.load(std::memory_order_relaxed);
    const int32_t own_level = level_of(level, text);
    t_partial_level         = own_level;
    if (own_level < kept_from && own_level < PYG_LOG_WARN) {
        return;  // the common case costs two comparisons
    }
    try {
        hear(own_level, text);
    } catch (const std::bad_alloc &) {}
}

LogMute::LogMute() { t_muted++; }

LogMute::~LogMute() { t_muted--; }

LogBuffer::LogBuffer() { t_held = this; }

LogBuffer::~LogBuffer() {
    t_held = nullptr;
    try {
        for (const auto & [level, text] : lines_) {
            keep(level, text);
        }
    } catch (const std::bad_alloc &) {  // lines are lost
    }
}

void lock_log_for_fork() { g_mutex.lock(); }
void unlock_log_after_fork() { g_mutex.unlock(); }

}  // namespace pyg

void pyg_log_set_level(int32_t level) { g_level.store(level, std::memory_order_relaxed); }

int32_t pyg_log_get_level(void) { return g_level.load(std::memory_order_relaxed); }

int32_t pyg_log_read(char * line, size_t size) {
    if (size == 0 || g_n_waiting.load(std::memory_order_relaxed) == 0) {
        return 0;
    }
    std::lock_guard<std::mutex> lock(g_mutex);
    if (g_waiting.empty()) {
        return 0;
    }
    const Line &  first = g_waiting.front();
    const size_t  n     = first.text.copy(line, size - 1);
    const int32_t level = first.level;
    line[n]             = '\0';
    g_waiting.pop_front();
    g_n_waiting.store(g_waiting.size(), std::memory_order_relaxed);
    return level;
}
