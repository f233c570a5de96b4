// Byte stream from one process to another in shared memory.
#pragma once

#include "boundary/guard.hpp"

#include <cstddef>

namespace pyg {

// Create shared memory for a ring buffer. Returns a descriptor, closed on exec, *owned by the caller*. PYG_ERR_ENGINE
int new_ring_buffer_memory();

// Single producer, single consumer, in different processes. Nothing blocks: if there is no data or no free space, try
// again later.
//
// The reader does not trust the shared memory: it bounds what it copies, and uses only its copies.
class RingBuffer : NonCopyable {
  public:
    // Map the memory; the caller keeps the descriptor. PYG_ERR_ENGINE
    explicit RingBuffer(int memory);
    ~RingBuffer();

    // --- the writer ---
    // Write as many of the `n` bytes as fit. Return how many.
    size_t write(const char * data, size_t n);
    // Return true if the reader sleeps and has to be woken; once for each sleep.
    bool take_wake_request();

    // --- the reader ---
    // Read up to `n` bytes. Return how many. PYG_ERR_ENGINE when the writer's position is impossible.
    size_t read(char * data, size_t n);
    // Announce that the reader is about to sleep. Return false if there is something to read.
    bool prepare_sleep();

  private:
    struct Shared;

    size_t n_waiting() const;

    Shared * const shared_;
    uint64_t       position_ = 0;  // of this side, in bytes since the start
};

}  // namespace pyg
