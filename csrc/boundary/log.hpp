// Engine messages on their way to Python's logging: filtered at once, kept until read.
#pragma once

#include "ggml.h"

#include <string>
#include <utility>
#include <vector>

namespace pyg {

// The callback given to ggml and llama. Any thread.
void on_engine_log(ggml_log_level level, const char * text, void * user_data) noexcept;

// While it lives, engine messages on this thread below warnings are dropped: for work the caller did not ask for.
class LogMute {
  public:
    LogMute();
    ~LogMute();
    LogMute(const LogMute &)             = delete;
    LogMute & operator=(const LogMute &) = delete;
};

// While it lives, engine messages on this thread are held back, and passed on at the end unless dropped.
class LogBuffer {
  public:
    LogBuffer();
    ~LogBuffer();
    LogBuffer(const LogBuffer &)             = delete;
    LogBuffer & operator=(const LogBuffer &) = delete;

    void drop() { lines_.clear(); }
    void add(int32_t level, const std::string & text) { lines_.emplace_back(level, text); }

  private:
    std::vector<std::pair<int32_t, std::string>> lines_;
};

// Called around fork(): no thread missing in the child may hold the queue's lock.
void lock_log_for_fork();
void unlock_log_after_fork();

}  // namespace pyg
