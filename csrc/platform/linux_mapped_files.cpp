#include "boundary/signals/mapped_files.hpp"
#include "platform/linux_signal_handler.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace pyg {

// Device and inode of a mapping as /proc/self/maps prints them: on stacked file systems, stat() differs.
struct FileIdentity {
    char text[40] = "";

    bool operator==(const FileIdentity & other) const { return std::strcmp(text, other.text) == 0; }
};

struct MappedFile::Watch {
    FileIdentity      identity;
    std::atomic<bool> broken{false};
    Watch *           next = nullptr;
};

}  // namespace pyg

namespace {

using Identity = pyg::FileIdentity;
using Watch    = pyg::MappedFile::Watch;

// A line of /proc/self/maps.
struct Mapping {
    uintptr_t begin = 0;
    uintptr_t end   = 0;
    Identity  file;

    bool is_anonymous() const { return std::strcmp(file.text, "00:00 0") == 0; }
};

// Format: "begin-end rwxp offset device inode path".
Mapping parsed(const char * line) {
    Mapping mapping;
    char *  rest;
    mapping.begin = std::strtoull(line, &rest, 16);
    mapping.end   = *rest == '-' ? std::strtoull(rest + 1, &rest, 16) : 0;
    for (int field = 0; field < 2 && *rest; field++) {  // rwxp, offset
        rest += std::strspn(rest, " ");
        rest += std::strcspn(rest, " ");
    }
    rest += std::strspn(rest, " ");
    size_t n = std::strcspn(rest, " ");  // device
    n += std::strspn(rest + n, " ");
    n += std::strcspn(rest + n, " \n");  // inode
    std::memcpy(mapping.file.text, rest, std::min(n, sizeof(mapping.file.text) - 1));
    return mapping;
}

// The mapping that contains an address; empty if there is none. Async-signal-safe, and uses little stack.
Mapping mapping_of(uintptr_t address) {
    const int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    Mapping   found;
    char      line[160] = "", chunk[512];  // paths may be longer and are not needed
    size_t    n_line    = 0;
    ssize_t   n_read;
    while (descriptor >= 0 && found.end == 0 && (n_read = read(descriptor, chunk, sizeof(chunk))) > 0) {
        for (ssize_t i = 0; i < n_read && found.end == 0; i++) {
            if (chunk[i] != '\n') {
                line[n_line] = chunk[i];
                n_line       = std::min(n_line + 1, sizeof(line) - 1);
                continue;
            }
            line[n_line]          = '\0';
            n_line                = 0;
            const Mapping mapping = parsed(line);
            if (mapping.begin <= address && address < mapping.end) {
                found = mapping;
            }
        }
    }
    if (descriptor >= 0) {
        close(descriptor);
    }
    return found;
}

uintptr_t page_size() {
    static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    return size;
}

// Maps a page to see how the kernel prints the file.
Identity identity_of(const std::string & path) {
    Identity  identity;
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return identity;
    }
    void * const page = mmap(nullptr, page_size(), PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (page != MAP_FAILED) {
        identity = mapping_of(reinterpret_cast<uintptr_t>(page)).file;
        munmap(page, page_size());
    }
    return identity;
}

void on_missing_page(int, siginfo_t * info, void * context);

pyg::SignalHandler g_handler{SIGBUS, on_missing_page};

// Guards the list and the handler. Also taken in the signal handler, so no memory that may fault is accessed under it.
class Spinlock {
  public:
    void lock() noexcept {
        while (flag_.test_and_set(std::memory_order_acquire)) {}
    }
    void unlock() noexcept { flag_.clear(std::memory_order_release); }

  private:
    std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

Spinlock g_lock;

Watch * g_watched = nullptr;

// Mark all watches of a file as broken. Return false if there are none.
bool is_watched(const Identity & file) {
    bool found = false;
    for (Watch * watch = g_watched; watch; watch = watch->next) {
        if (watch->identity == file) {
            watch->broken = true;
            found         = true;
        }
    }
    return found;
}

// Return true if the page can be read now. Another thread may have replaced it already.
bool replace_with_zeros(uintptr_t address) {
    const std::lock_guard<Spinlock> lock(g_lock);
    const Mapping                   mapping = mapping_of(address);
    if (mapping.end == 0 || mapping.is_anonymous()) {
        return mapping.end != 0;
    }
    const uintptr_t page = address & ~(page_size() - 1);
    return is_watched(mapping.file) &&
           mmap(reinterpret_cast<void *>(page), mapping.end - page, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void on_missing_page(int, siginfo_t * info, void * context) {
    const int error = errno;
    if (info->si_code != BUS_ADRERR || !replace_with_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) {
        g_handler.call_previous(info, context);
    }
    errno = error;
}

}  // namespace

namespace pyg {

MappedFile::MappedFile(const std::string & path) : path_(path), watch_(std::make_unique<Watch>()) {
    watch_->identity = identity_of(path);
    const std::lock_guard<Spinlock> lock(g_lock);
    if (!g_watched) {
        g_handler.install();
    }
    watch_->next = g_watched;
    g_watched    = watch_.get();
}

MappedFile::~MappedFile() {
    const std::lock_guard<Spinlock> lock(g_lock);
    Watch **                        link = &g_watched;
    while (*link != watch_.get()) {
        link = &(*link)->next;
    }
    *link = watch_->next;
    if (!g_watched) {
        g_handler.restore();
    }
}

bool MappedFile::is_broken() const noexcept { return watch_->broken.load(std::memory_order_relaxed); }

void lock_mapped_files_for_fork() { g_lock.lock(); }
void unlock_mapped_files_after_fork() { g_lock.unlock(); }

}  // namespace pyg
