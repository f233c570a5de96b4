// The operating system behind its header. Uses no other part of the core and no engine, so it also runs where these do
// not build.
#include "platform/loaded_library.h"
#include "platform/platform.hpp"
#include "tests/support/testing.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace platform = pyg::platform;

#ifdef _WIN32
constexpr bool HAS_ISOLATION = false;
#else
constexpr bool HAS_ISOLATION = true;
#endif

// --- threads ---

struct Recursion {
    const char * low     = nullptr;
    size_t       n_bytes = 0;  // to use
    size_t       n_used  = 0;
};

// Writes to a kilobyte of the stack per call, as std::regex does. Not optimised to a loop.
size_t recurse(size_t n_bytes) {
    volatile char kilobyte[1024];
    kilobyte[0] = 1;
    return n_bytes <= sizeof(kilobyte) ? sizeof(kilobyte) : recurse(n_bytes - sizeof(kilobyte)) + kilobyte[0] * 1024;
}

void use_stack(void * argument, const char * low) {
    auto & recursion = *static_cast<Recursion *>(argument);
    recursion.low    = low;
    const char here  = 0;
    CHECK(low < &here);
    recursion.n_used = recurse(recursion.n_bytes);
}

void test_a_call_has_the_stack_that_it_asks_for() {
    constexpr size_t LARGE = size_t{64} << 20;  // eight times what threads have
    Recursion        recursion;
    recursion.n_bytes = LARGE / 4;  // frames are larger than their arrays
    platform::run_on_stack(LARGE, use_stack, &recursion);
    CHECK(recursion.low != nullptr);
    CHECK(recursion.n_used >= LARGE / 4);
}

void test_a_stack_that_is_too_large_is_refused() {
    bool refused = false;
    try {
        platform::run_on_stack(SIZE_MAX / 4, use_stack, nullptr);
    } catch (const platform::StackRefused & error) {
        refused = error.bytes >= SIZE_MAX / 4;
    }
    CHECK(refused);
}

void test_only_this_threads_cpu_time_counts() {
    const int64_t before = platform::thread_cpu_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const int64_t slept = platform::thread_cpu_ns();
    CHECK(slept - before < 40'000'000);
    uint64_t sum = 0;
    while (platform::thread_cpu_ns() - slept < 30'000'000) {
        sum += static_cast<uint64_t>(platform::thread_cpu_ns());
    }
    CHECK(sum != 0);
}

void test_threads_can_be_named_and_set_back() {
    const platform::SignalsBlocked blocked;
    std::thread([] {
        platform::name_this_thread("pyggml-test");
        platform::take_lowest_priority();
    }).join();
    CHECK(platform::default_stack_size() >= size_t{64} << 10);
}

// --- the machine ---

void test_the_machine_is_described() {
    const size_t page = platform::page_size();
    CHECK(page >= 4096 && (page & (page - 1)) == 0);
    CHECK(platform::main_memory() > size_t{64} << 20);
    CHECK(platform::n_online_processors() >= 1);
    const std::vector<int> allowed = platform::allowed_processors();
    CHECK(std::is_sorted(allowed.begin(), allowed.end()));
    CHECK(allowed.size() <= static_cast<size_t>(platform::n_online_processors()));
    platform::return_freed_memory();
}

void test_bytes_are_found_as_by_string() {
    const std::string text = std::string("abcab\0abd", 9), empty;
    for (const std::string & part : {std::string("abd"), std::string("b\0a", 3), std::string("x"), empty, text}) {
        const auto * found =
            static_cast<const char *>(platform::find_bytes(text.data(), text.size(), part.data(), part.size()));
        const size_t expected = text.find(part);
        CHECK(expected == std::string::npos ? !found : found == text.data() + expected);
    }
    CHECK(platform::find_bytes(text.data(), 2, text.data(), 3) == nullptr);
}

// --- files ---

void test_files_are_told_apart(const std::string & folder) {
    const std::string path = folder + "/platform-caf\xc3\xa9.tmp";  // UTF-8
    {
        std::FILE * const file = std::fopen((folder + "/platform-plain.tmp").c_str(), "wb");
        CHECK(file && std::fwrite("1\r\n\x1a"
                                  "5",
                                  1, 5, file) == 5);
        std::fclose(file);
    }
    platform::FileInfo about;
    std::FILE * const  file = platform::open_file((folder + "/platform-plain.tmp").c_str(), about);
    CHECK(file && about.is_regular && !about.is_directory && about.size == 5);
    char bytes[8];
    CHECK(std::fread(bytes, 1, sizeof(bytes), file) == 5);  // no line ends are translated
    std::fclose(file);
    CHECK(std::remove((folder + "/platform-plain.tmp").c_str()) == 0);

    about                    = {};
    std::FILE * const opened = platform::open_file(folder.c_str(), about);
    CHECK(about.is_directory && !about.is_regular);
    if (opened) {
        std::fclose(opened);
    }
    about = {};
    errno = 0;
    CHECK(!platform::open_file(path.c_str(), about) && errno == ENOENT && !about.is_directory);
}

// --- wake descriptors, shared memory, sockets ---

void test_a_wake_descriptor_is_signalled_and_drained() {
    platform::WakeDescriptor wake;
    CHECK(platform::open_wake_descriptor(wake));
    for (int i = 0; i < 3; i++) {
        platform::signal_wake_descriptor(wake);
        platform::drain_wake_descriptor(wake);
        platform::drain_wake_descriptor(wake);  // returns although there is no signal
    }
    platform::close_wake_descriptor(wake);
}

void test_shared_memory_is_shared() {
    constexpr size_t SIZE   = 1 << 20;
    const int        memory = platform::new_shared_memory(SIZE);
    if (!HAS_ISOLATION) {
        CHECK(memory < 0 && errno == ENOTSUP);
        return;
    }
    CHECK(memory >= 0);
    auto * const first  = static_cast<char *>(platform::map_shared_memory(memory, SIZE));
    auto * const second = static_cast<char *>(platform::map_shared_memory(memory, SIZE));
    CHECK(first && second && first != second);
    first[SIZE - 1] = 'x';
    CHECK(second[SIZE - 1] == 'x' && second[0] == 0);
    platform::unmap_shared_memory(first, SIZE);
    platform::unmap_shared_memory(second, SIZE);
    platform::close_descriptor(memory);
    CHECK(platform::map_shared_memory(-1, SIZE) == nullptr);
}

void test_sockets_carry_whole_messages() {
    int ours = -1, theirs = -1;
    if (!platform::open_socket_pair(ours, theirs)) {
        CHECK(!HAS_ISOLATION && errno == ENOTSUP);
        return;
    }
    char byte = 0;
    CHECK(platform::try_receive(ours, &byte, 1) == -1 && platform::would_wait());
    CHECK(platform::try_peek(ours, &byte, 1) == -1 && platform::would_wait());

    std::string           message(size_t{1} << 20, 'm');
    char                  kind = 'k', size = 's';
    const platform::Bytes parts[] = {{&kind, 1}, {&size, 1}, {message.data(), message.size()}};
    std::string           received(message.size() + 2, '\0');
    std::atomic<int64_t>  n_received{0};
    std::thread           reader([&] { n_received = platform::receive_all(theirs, received.data(), received.size()); });
    const std::ptrdiff_t  n_sent = platform::send_parts(ours, parts, 3);
    CHECK(n_sent > 2);
    for (size_t sent = static_cast<size_t>(n_sent) - 2; sent < message.size();) {
        const std::ptrdiff_t n = platform::send_bytes(ours, message.data() + sent, message.size() - sent);
        CHECK(n > 0);
        sent += static_cast<size_t>(n);
    }
    reader.join();
    CHECK(n_received == static_cast<int64_t>(received.size()));
    CHECK(received == "ks" + message);

    CHECK(platform::try_send(theirs, "w", 1) == 1);
    CHECK(platform::try_peek(ours, &byte, 1) == 1 && byte == 'w');
    CHECK(platform::receive(ours, &byte, 1) == 1);
    platform::set_timeouts(ours, 0.05);
    CHECK(platform::receive(ours, &byte, 1) == -1 && platform::would_wait());
    platform::shut_down(theirs);
    CHECK(platform::receive(ours, &byte, 1) == 0);
    CHECK(platform::send_bytes(ours, "x", 1) == -1 && !platform::would_wait());  // and no SIGPIPE
    platform::close_socket(ours);
    platform::close_socket(theirs);
}

// --- files that are written ---

void test_a_new_file_is_written_whole(const std::string & folder) {
    const std::string path = folder + "/test_platform-new-file", text(100000, 'x');
    std::remove(path.c_str());
    CHECK(platform::write_new_file(path.c_str(), text.data(), text.size()));
    platform::sync_folder(folder.c_str());

    platform::FileInfo about;
    std::FILE * const  file = platform::open_file(path.c_str(), about);
    CHECK(file && about.size == text.size());
    std::string found(text.size(), '\0');
    CHECK(std::fread(&found[0], 1, found.size(), file) == found.size() && found == text);
    std::fclose(file);

    CHECK(!platform::write_new_file(path.c_str(), "y", 1) && errno == EEXIST);
    CHECK(std::remove(path.c_str()) == 0);
    CHECK(!platform::write_new_file((path + "/none/file").c_str(), "y", 1));
}

// --- libraries ---

void test_a_library_that_is_missing_has_a_reason() {
    std::string refusal;
    CHECK(platform::open_library("pyggml-no-such-library", refusal) == nullptr);
    CHECK(!refusal.empty());
    const char * library = "";
    int          local   = 0;  // the stack is in no library
    CHECK(pyg_symbol_of_library_at(&local, "malloc", &library) == nullptr && library == nullptr);
}

}  // namespace

int main(int n_arguments, char ** arguments) {
    test_a_call_has_the_stack_that_it_asks_for();
    test_a_stack_that_is_too_large_is_refused();
    test_only_this_threads_cpu_time_counts();
    test_threads_can_be_named_and_set_back();
    test_the_machine_is_described();
    test_bytes_are_found_as_by_string();
    test_files_are_told_apart(n_arguments > 1 ? arguments[1] : ".");
    test_a_new_file_is_written_whole(n_arguments > 1 ? arguments[1] : ".");
    test_a_wake_descriptor_is_signalled_and_drained();
    test_shared_memory_is_shared();
    test_sockets_carry_whole_messages();
    test_a_library_that_is_missing_has_a_reason();
    return 0;
}
