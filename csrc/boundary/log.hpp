// Engine messages for Python's logging: filtered by level and queued until read.
#pragma once

#include "boundary/non_copyable.hpp"
#include "ggml.h"

#include <string>
#include <utility>
#include <vector>

namespace pyg {

// Log callback of ggml and llama. Any thread.
void on_engine_log(ggml_log_level level, const char * text, void * user_data) noexcept;

// While it lives, engine messages on this thread are not logged: for internal work. Exceptions still have its warnings
// and errors.
class LogMute : NonCopyable {
  public:
    LogMute();
    ~LogMute();
};

// While it lives, engine messages on this thread are buffered, and logged at the end unless dropped.
class LogBuffer : NonCopyable {
  public:
    LogBuffer();
    ~LogBuffer();

    void drop() { lines_.clear(); }
    void add(int32_t level, const std::string & text) { lines_.emplace_back(level, text); }

  private:
    std::vector<std::pair<int32_t, std::string>> lines_;
};

// Called around fork(), so that the queue's lock is free in the child.
void lock_log_for_fork();
void unlock_log_after_fork();

}  // namespace pyg
