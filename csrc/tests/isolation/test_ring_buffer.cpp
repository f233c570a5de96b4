// The ring buffer between two processes: bytes arrive in order and complete, and the reader validates positions.
#include "isolation/ring_buffer.hpp"
#include "tests/support/testing.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

namespace {

constexpr size_t N_BYTES = size_t{32} << 20;

char byte_at(size_t position) { return static_cast<char>((position * 2654435761u) >> 13); }

// Two mappings of the same memory, as in two processes.
struct Both {
    int             memory = pyg::new_ring_buffer_memory();
    pyg::RingBuffer writer{memory}, reader{memory};

    ~Both() { close(memory); }
};

void test_everything_arrives() {
    Both         both;
    std::thread  writing([&] {
        std::mt19937 random(1);
        std::string  piece;
        for (size_t done = 0; done < N_BYTES;) {
            piece.resize(std::min<size_t>(1 + random() % 100'000, N_BYTES - done));
            for (size_t i = 0; i < piece.size(); i++) {
                piece[i] = byte_at(done + i);
            }
            for (size_t write = 0; write < piece.size();) {
                write += both.writer.write(piece.data() + write, piece.size() - write);
            }
            done += piece.size();
        }
    });
    std::mt19937 random(2);
    std::string  taken;
    for (size_t done = 0; done < N_BYTES;) {
        taken.resize(1 + random() % 100'000);
        const size_t n = both.reader.read(taken.data(), taken.size());
        for (size_t i = 0; i < n; i++) {
            CHECK(taken[i] == byte_at(done + i));
        }
        done += n;
    }
    writing.join();
    CHECK(both.reader.read(taken.data(), taken.size()) == 0);
}

// Either the reader sees the bytes, or the writer sees that the reader sleeps.
void test_no_sleep_is_missed() {
    Both              both;
    std::atomic<bool> awake{true};
    std::thread       writing([&] {
        for (int i = 0; i < 20'000; i++) {
            while (both.writer.write("x", 1) == 0) {}
            if (both.writer.take_wake_request()) {
                awake = true;
            }
        }
    });
    for (int n = 0; n < 20'000;) {
        char bytes[64];
        n += static_cast<int>(both.reader.read(bytes, sizeof(bytes)));
        awake = false;
        if (n < 20'000 && both.reader.prepare_sleep()) {
            while (!awake) {
                std::this_thread::yield();
            }
        }
    }
    writing.join();
}

void test_a_full_ring_takes_no_more() {
    Both              both;
    const std::string much(size_t{3} << 20, 'a');
    const size_t      n = both.writer.write(much.data(), much.size());
    CHECK(n > 0 && n < much.size());
    CHECK(both.writer.write("b", 1) == 0);
    std::string taken(10, ' ');
    CHECK(both.reader.read(taken.data(), taken.size()) == 10);
    CHECK(both.writer.write(much.data(), much.size()) == 10);
}

void test_an_impossible_account_is_refused() {
    Both both;
    CHECK(both.writer.write("abc", 3) == 3);
    void * shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, both.memory, 0);
    CHECK(shared != MAP_FAILED);
    const uint64_t lie = uint64_t{1} << 40;
    std::memcpy(shared, &lie, sizeof(lie));  // what was written
    pyg_error  error;
    const auto status = pyg::guard(&error, [&] {
        char byte;
        both.reader.read(&byte, 1);
    });
    CHECK(status == PYG_ERR_ENGINE);
    CHECK(munmap(shared, 4096) == 0);
}

}  // namespace

int main() {
    test_everything_arrives();
    test_no_sleep_is_missed();
    test_a_full_ring_takes_no_more();
    test_an_impossible_account_is_refused();
}
