#include "isolation/ring_buffer.hpp"

#include "platform/platform.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace {

constexpr size_t CAPACITY = size_t{1} << 20;

// Avoids false sharing between the two sides.
constexpr size_t CACHE_LINE = 128;

pyg::Failure no_shared_memory() {
    return pyg::fail(PYG_ERR_ENGINE, "could not create memory to share with the engine's process: %s",
                     std::strerror(errno));
}

}  // namespace

namespace pyg {

struct RingBuffer::Shared {
    alignas(CACHE_LINE) std::atomic<uint64_t> n_written;
    alignas(CACHE_LINE) std::atomic<uint64_t> n_read;
    alignas(CACHE_LINE) std::atomic<uint32_t> reader_sleeps;  // nonzero while it does
    alignas(CACHE_LINE) char bytes[CAPACITY];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock of one process means nothing to another");

int new_ring_buffer_memory() {
    // Whole pages, at least what the constructor maps.
    const int memory = platform::new_shared_memory(CAPACITY + 16 * CACHE_LINE);
    if (memory < 0) {
        throw no_shared_memory();
    }
    return memory;
}

RingBuffer::RingBuffer(int memory)
    : shared_(static_cast<Shared *>(platform::map_shared_memory(memory, sizeof(Shared)))) {
    static_assert(sizeof(Shared) <= CAPACITY + 16 * CACHE_LINE, "the memory holds it");
    if (!shared_) {
        throw no_shared_memory();
    }
}

RingBuffer::~RingBuffer() { platform::unmap_shared_memory(shared_, sizeof(Shared)); }

size_t RingBuffer::write(const char * data, size_t n) {
    const uint64_t n_unread  = position_ - shared_->n_read.load(std::memory_order_acquire);
    const size_t   n_free    = CAPACITY - static_cast<size_t>(std::min<uint64_t>(n_unread, CAPACITY));
    const size_t   n_written = std::min(n, n_free);
    const size_t   first     = static_cast<size_t>(position_ % CAPACITY);
    const size_t   n_here    = std::min(n_written, CAPACITY - first);
    std::memcpy(shared_->bytes + first, data, n_here);
    std::memcpy(shared_->bytes, data + n_here, n_written - n_here);
    position_ += n_written;
    shared_->n_written.store(position_);  // before `reader_sleeps` is read
    return n_written;
}

bool RingBuffer::take_wake_request() {
    return shared_->reader_sleeps.load() != 0 && shared_->reader_sleeps.exchange(0) != 0;
}

size_t RingBuffer::read(char * data, size_t n) {
    const size_t n_read = std::min(n, n_waiting());
    const size_t first  = static_cast<size_t>(position_ % CAPACITY);
    const size_t n_here = std::min(n_read, CAPACITY - first);
    std::memcpy(data, shared_->bytes + first, n_here);
    std::memcpy(data + n_here, shared_->bytes, n_read - n_here);
    position_ += n_read;
    shared_->n_read.store(position_, std::memory_order_release);
    return n_read;
}

bool RingBuffer::prepare_sleep() {
    shared_->reader_sleeps.store(1);  // before `n_written` is read: one of the two sides sees the other's store
    return n_waiting() == 0;
}

size_t RingBuffer::n_waiting() const {
    const uint64_t n = shared_->n_written.load() - position_;
    if (n > CAPACITY) {
        throw fail(PYG_ERR_ENGINE, "the engine's process corrupted the shared memory");
    }
    return static_cast<size_t>(n);
}

}  // namespace pyg
