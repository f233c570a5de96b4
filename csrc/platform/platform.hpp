// Operating systems: everything that the core needs of them beyond the C++ standard library.
//
// No other file of the core includes a system's headers, except for the implementations of boundary/signals/, which are
// in this folder, too. linux.cpp and macos.cpp implement what differs between these two, posix*.cpp what they share,
// and windows*.cpp everything for Windows, where it compiles and has never been run.
//
// Any thread may call. Functions that fail set errno, on Windows as well.
#pragma once

#include "boundary/non_copyable.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace pyg::platform {

// --- threads --------------------------------------------------------------------------------------------------

// While it lives, threads started on this thread block signals, so that Ctrl-C reaches one of Python's threads. Signals
// that report a crash of the thread itself are not blocked. Windows delivers no signals to threads.
class SignalsBlocked : NonCopyable {
  public:
    SignalsBlocked();
    ~SignalsBlocked();

  private:
    [[maybe_unused]] std::array<uint64_t, 16> before_;  // the system's set of signals
};

// Shown by debuggers and monitors; at most 15 bytes.
void name_this_thread(const char * name);

// Let all other threads of the machine go first. If the system refuses, nothing changes.
void take_lowest_priority();

// CPU time of this thread in nanoseconds.
int64_t thread_cpu_ns();

// Stack size in bytes of threads that are started without one.
size_t default_stack_size();

// Address space of a stack that could not be reserved.
struct StackRefused {
    size_t bytes;
};

// Call run(argument, low) on a new thread, whose stack has at least `size` bytes from `low` on, and wait for it. The
// stack is backed by memory only where touched, with a guard page below. `run` must not throw. Throws StackRefused, or
// std::system_error if no thread can be started.
void run_on_stack(size_t size, void (*run)(void * argument, const char * low), void * argument);

// --- processes ------------------------------------------------------------------------------------------------

// Call these around fork(), on the thread that forks. Windows has no fork.
void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)());

// End this process when its parent, the process `parent`, exits; at once if it has. Where the system has no such
// request, only a parent that has exited already is noticed.
void end_with_parent(int32_t parent);

// --- the machine ----------------------------------------------------------------------------------------------

// Main memory in bytes that is available, or all if the system has no such number. On Linux all: /proc/meminfo has the
// other (boundary/machine_limits.cpp).
uint64_t main_memory();

// Limit of this process's address space in bytes (`ulimit -v`).
std::optional<uint64_t> address_space_limit();

// True if pages of a mapped file can be released while they are mapped (kernels/backend/memory_pages.hpp).
extern const bool RELEASES_MAPPED_PAGES;

// Return memory that was freed to the system, where the C library keeps it.
void return_freed_memory();

size_t page_size();

// First occurrence of `part` in `text`, null if there is none; in linear time, but in quadratic time on Windows.
const void * find_bytes(const void * text, size_t text_size, const void * part, size_t part_size) noexcept;

// Processors this process may run on; empty if unknown.
std::vector<int> allowed_processors();

// Processors that are online.
int32_t n_online_processors();

// --- files ----------------------------------------------------------------------------------------------------

struct FileInfo {
    bool     is_regular   = false;
    bool     is_directory = false;
    uint64_t size         = 0;
};

// Open a file to read it, without waiting for the writer of a named pipe, closed on exec. `path` is UTF-8. Returns null
// on failure; a directory is one on Windows.
std::FILE * open_file(const char * path, FileInfo & about);

// Create a file that only its owner may read, write it and sync it to the disk. Returns false on failure, after which a
// part of it may be there; EEXIST if it exists.
bool write_new_file(const char * path, const void * data, size_t size);

// Sync the entries of a directory to the disk. Windows does so by itself.
void sync_folder(const char * path);

// --- shared memory and descriptors ----------------------------------------------------------------------------

// Create memory to share with a child process. Returns a descriptor, closed on exec, *owned by the caller*; -1 on
// failure. ENOTSUP on Windows.
int new_shared_memory(size_t bytes);

// Map such memory; null on failure.
void * map_shared_memory(int descriptor, size_t bytes);
void   unmap_shared_memory(void * memory, size_t bytes);

void close_descriptor(int descriptor);

// Descriptor that is readable while a signal is pending, for event loops. On Windows a socket.
struct WakeDescriptor {
    int read  = -1;
    int write = -1;  // the same on Linux
};

// Returns false on failure.
bool open_wake_descriptor(WakeDescriptor & out);
// At most one signal may be pending.
void signal_wake_descriptor(const WakeDescriptor & descriptor);
void drain_wake_descriptor(const WakeDescriptor & descriptor);
void close_wake_descriptor(const WakeDescriptor & descriptor);

// --- sockets --------------------------------------------------------------------------------------------------

// Part of a message.
struct Bytes {
    void * data;
    size_t size;
};

// Connect two sockets of this machine, closed on exec; false on failure.
bool open_socket_pair(int & first, int & second);

// These return the number of bytes, 0 at the end of the stream, -1 on failure. Writing to a closed socket raises no
// SIGPIPE. Those that begin with try_ do not wait (EAGAIN).
std::ptrdiff_t send_bytes(int socket, const void * data, size_t size);
std::ptrdiff_t send_parts(int socket, const Bytes * parts, int n_parts);
std::ptrdiff_t try_send(int socket, const void * data, size_t size);
std::ptrdiff_t receive(int socket, void * data, size_t size);
std::ptrdiff_t receive_all(int socket, void * data, size_t size);  // waits for all bytes
std::ptrdiff_t try_receive(int socket, void * data, size_t size);
std::ptrdiff_t try_peek(int socket, void * data, size_t size);  // leaves the bytes

// True if errno says that a call would have had to wait, or waited for too long (set_timeouts).
bool would_wait();

// End both directions, which wakes threads that wait for the socket.
void shut_down(int socket);
void close_socket(int socket);

// Detect within half a minute that a peer has vanished (no power, no network), even if nothing waits for it.
// `limits_unacknowledged`: also while sent data are not acknowledged. Send small messages at once.
void keep_alive(int socket, bool limits_unacknowledged);

// Longest wait of a call in seconds; 0: no limit.
void set_timeouts(int socket, double seconds);

// --- libraries ------------------------------------------------------------------------------------------------

// Names of libraries that are loaded at run time.
extern const char * const LIBRARY_PREFIX;
extern const char * const LIBRARY_SUFFIX;

// Load a library; null and `refusal`, the loader's words, on failure.
void * open_library(const char * path, std::string & refusal);
void   close_library(void * library);
void * symbol_of_library(void * library, const char * name);  // null if it has none

}  // namespace pyg::platform
