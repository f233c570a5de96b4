// A stream of bytes from one process to another, through memory that both have mapped.
#pragma once

#include "boundary/guard.hpp"

#include <cstddef>

namespace pyg {

// New shared memory for a ring: a descriptor, closed on exec, that is *owned by the caller*. PYG_ERR_ENGINE
int new_ring_buffer_memory();

// One thread of one process writes, one of another reads. Neither waits here: who finds nothing looks again later.
//
// The reader believes nothing that the memory says: it bounds what it copies, and looks only at its copies.
class RingBuffer {
  public:
    // Maps the memory; the descriptor stays the caller's. PYG_ERR_ENGINE
    explicit RingBuffer(int memory);
    ~RingBuffer();
    RingBuffer(const RingBuffer &)             = delete;
    RingBuffer & operator=(const RingBuffer &) = delete;

    // --- the writer ---
    // Writes the beginning of the `n` bytes, as much as there is room for; returns how much.
    size_t write(const char * data, size_t n);
    // Whether the reader has gone to sleep and has to be woken; true once for each sleep.
    bool take_wake_request();

    // --- the reader ---
    // Takes what there is, up to `n` bytes; returns how much. PYG_ERR_ENGINE when the writer's account is impossible.
    size_t read(char * data, size_t n);
    // Announces that the reader goes to sleep; false: there is something to take after all.
    bool prepare_sleep();

  private:
    struct Shared;

    size_t n_waiting() const;

    Shared * const shared_;
    uint64_t       position_ = 0;  // of this side, in bytes since the beginning
};

}  // namespace pyg
