// Threads, processes and files of Windows. Compiles with MinGW's headers (make cross-check); never run.
#include "platform/loaded_library.h"
#include "platform/platform.hpp"

#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
// clang-format off: in this order
#include <winsock2.h>
#include <windows.h>
// clang-format on
#include <tlhelp32.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <type_traits>

namespace {

struct HandleCloser {
    void operator()(HANDLE handle) const { CloseHandle(handle); }
};

using UniqueHandle = std::unique_ptr<std::remove_pointer_t<HANDLE>, HandleCloser>;

std::wstring wide(const char * utf8) {
    const int    n = MultiByteToWideChar(CP_UTF8, 0, utf8, -1, nullptr, 0);
    std::wstring text(n > 0 ? static_cast<size_t>(n) : 1, L'\0');
    MultiByteToWideChar(CP_UTF8, 0, utf8, -1, text.data(), n);
    text.pop_back();  // the terminator
    return text;
}

std::string last_error() { return std::system_category().message(static_cast<int>(GetLastError())); }

int64_t nanoseconds(const FILETIME & time) {
    constexpr int64_t NS_OF_A_TICK = 100;
    return static_cast<int64_t>(uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime) * NS_OF_A_TICK;
}

SYSTEM_INFO system_info() {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info;
}

struct CallOnStack {
    void (*run)(void * argument, const char * low);
    void * argument;
};

// Part of the stack that the system keeps for its guard page and for handling an overflow.
constexpr size_t RESERVED_STACK = 64 << 10;

// The system chooses where the stack is.
DWORD WINAPI run_call(void * call) {
    const auto & c    = *static_cast<CallOnStack *>(call);
    ULONG_PTR    low  = 0;
    ULONG_PTR    high = 0;
    GetCurrentThreadStackLimits(&low, &high);
    c.run(c.argument, reinterpret_cast<const char *>(low) + RESERVED_STACK);
    return 0;
}

// Process that started this one; 0 if unknown.
DWORD parent_process() {
    const HANDLE snapshot = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    if (snapshot == INVALID_HANDLE_VALUE) {
        return 0;
    }
    const UniqueHandle owner(snapshot);
    PROCESSENTRY32W    entry = {};
    entry.dwSize             = sizeof(entry);
    for (BOOL found = Process32FirstW(snapshot, &entry); found; found = Process32NextW(snapshot, &entry)) {
        if (entry.th32ProcessID == GetCurrentProcessId()) {
            return entry.th32ParentProcessID;
        }
    }
    return 0;
}

}  // namespace

namespace pyg::platform {

SignalsBlocked::SignalsBlocked() : before_{} {}
SignalsBlocked::~SignalsBlocked() = default;

void name_this_thread(const char * name) { SetThreadDescription(GetCurrentThread(), wide(name).c_str()); }

void take_lowest_priority() { SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_IDLE); }

int64_t thread_cpu_ns() {
    FILETIME created, exited, kernel, user;
    if (!GetThreadTimes(GetCurrentThread(), &created, &exited, &kernel, &user)) {
        return 0;
    }
    return nanoseconds(kernel) + nanoseconds(user);
}

size_t default_stack_size() { return size_t{1} << 20; }  // of executables, unless linked with another

void run_on_stack(size_t size, void (*run)(void * argument, const char * low), void * argument) {
    CallOnStack        call = {run, argument};
    const UniqueHandle thread(
        CreateThread(nullptr, size + RESERVED_STACK, run_call, &call, STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr));
    if (!thread) {
        if (GetLastError() == ERROR_NOT_ENOUGH_MEMORY) {
            throw StackRefused{size};
        }
        throw std::system_error(static_cast<int>(GetLastError()), std::system_category(),
                                "a thread with a larger stack");
    }
    WaitForSingleObject(thread.get(), INFINITE);
}

void at_fork(void (*)(), void (*)(), void (*)()) {}

void end_with_parent(int32_t parent) {
    if (parent_process() != static_cast<DWORD>(parent)) {
        ExitProcess(1);
    }
}

uint64_t main_memory() {
    MEMORYSTATUSEX memory = {};
    memory.dwLength       = sizeof(memory);
    return GlobalMemoryStatusEx(&memory) ? memory.ullAvailPhys : 0;
}

std::optional<uint64_t> address_space_limit() { return std::nullopt; }

const bool RELEASES_MAPPED_PAGES = false;

void return_freed_memory() {}

size_t page_size() { return system_info().dwPageSize; }

const void * find_bytes(const void * text, size_t text_size, const void * part, size_t part_size) noexcept {
    const auto * const begin = static_cast<const char *>(text);
    const auto * const first = static_cast<const char *>(part);
    const auto * const found = std::search(begin, begin + text_size, first, first + part_size);
    return found == begin + text_size && part_size > 0 ? nullptr : found;
}

std::vector<int> allowed_processors() {
    DWORD_PTR        ours = 0, all = 0;
    std::vector<int> processors;
    if (GetProcessAffinityMask(GetCurrentProcess(), &ours, &all)) {
        for (int i = 0; i < static_cast<int>(8 * sizeof(ours)); i++) {
            if (ours >> i & 1) {
                processors.push_back(i);
            }
        }
    }
    return processors;
}

int32_t n_online_processors() { return static_cast<int32_t>(system_info().dwNumberOfProcessors); }

std::FILE * open_file(const char * path, FileInfo & about) {
    const DWORD attributes = GetFileAttributesW(wide(path).c_str());
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY)) {
        about.is_directory = true;
        errno              = EISDIR;
        return nullptr;
    }
    const int descriptor = _wopen(wide(path).c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT);
    if (descriptor < 0) {
        return nullptr;
    }
    std::FILE * const file = _fdopen(descriptor, "rb");
    if (!file) {
        _close(descriptor);
        return nullptr;
    }
    struct _stat64 status;
    if (_fstat64(descriptor, &status) == 0) {
        about = {(status.st_mode & _S_IFMT) == _S_IFREG, (status.st_mode & _S_IFMT) == _S_IFDIR,
                 static_cast<uint64_t>(status.st_size)};
    }
    return file;
}

bool write_new_file(const char * path, const void * data, size_t size) {
    constexpr size_t MOST = size_t{1} << 30;  // of one call
    const int        descriptor =
        _wopen(wide(path).c_str(), _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
    if (descriptor < 0) {
        return false;
    }
    const auto * bytes = static_cast<const char *>(data);
    bool         done  = true;
    while (done && size > 0) {
        const int n = _write(descriptor, bytes, static_cast<unsigned>(std::min(size, MOST)));
        done        = n > 0;
        bytes += n > 0 ? n : 0;
        size -= n > 0 ? static_cast<size_t>(n) : 0;
    }
    done            = done && _commit(descriptor) == 0;
    const int error = errno;
    done            = _close(descriptor) == 0 && done;
    errno           = done ? errno : error ? error : EIO;
    return done;
}

void sync_folder(const char *) {}

// Descriptors cannot be passed to child processes, so there is no isolation.
int new_shared_memory(size_t) {
    errno = ENOTSUP;
    return -1;
}

void * map_shared_memory(int, size_t) {
    errno = ENOTSUP;
    return nullptr;
}

void unmap_shared_memory(void *, size_t) {}

void close_descriptor(int descriptor) { _close(descriptor); }

const char * const LIBRARY_PREFIX = "";
const char * const LIBRARY_SUFFIX = ".dll";

void * open_library(const char * path, std::string & refusal) {
    void * const library = LoadLibraryW(wide(path).c_str());
    refusal              = library ? "" : last_error();
    return library;
}

void close_library(void * library) { FreeLibrary(static_cast<HMODULE>(library)); }

void * symbol_of_library(void * library, const char * name) {
    return reinterpret_cast<void *>(GetProcAddress(static_cast<HMODULE>(library), name));
}

}  // namespace pyg::platform

void * pyg_symbol_of_library_at(const void * inside, const char * name, const char ** library) {
    static thread_local char path[MAX_PATH];
    HMODULE                  module = nullptr;
    constexpr DWORD FLAGS = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    *library              = nullptr;
    if (!GetModuleHandleExA(FLAGS, static_cast<const char *>(inside), &module)) {
        return nullptr;
    }
    *library = GetModuleFileNameA(module, path, MAX_PATH) ? path : "";
    return pyg::platform::symbol_of_library(module, name);
}
