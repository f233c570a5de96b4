// Threads, processes and files of Linux and macOS.
#include "platform/loaded_library.h"
#include "platform/platform.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <system_error>

namespace {

// Reserved address space, backed by memory only where touched, with a guard page below.
class Stack : pyg::NonCopyable {
  public:
    explicit Stack(size_t size) : guard_(pyg::platform::page_size()) {
        size_ = (size + guard_ - 1) / guard_ * guard_ + guard_;
        base_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base_ == MAP_FAILED) {
            throw pyg::platform::StackRefused{size_};
        }
        mprotect(base_, guard_, PROT_NONE);
    }
    ~Stack() { munmap(base_, size_); }

    void * low() const { return static_cast<char *>(base_) + guard_; }
    size_t size() const { return size_ - guard_; }

  private:
    size_t guard_;
    size_t size_;
    void * base_;
};

struct CallOnStack {
    void (*run)(void * argument, const char * low);
    void *       argument;
    const char * low;
};

void * run_call(void * call) {
    const auto & c = *static_cast<CallOnStack *>(call);
    c.run(c.argument, c.low);
    return nullptr;
}

}  // namespace

namespace pyg::platform {

SignalsBlocked::SignalsBlocked() {
    static_assert(sizeof(sigset_t) <= sizeof(before_), "before_ holds a set of signals");
    sigset_t all;
    sigfillset(&all);
    for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
        sigdelset(&all, crash);
    }
    pthread_sigmask(SIG_SETMASK, &all, new (before_.data()) sigset_t);
}

SignalsBlocked::~SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, std::launder(reinterpret_cast<const sigset_t *>(before_.data())), nullptr);
}

int64_t thread_cpu_ns() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

size_t default_stack_size() {
    pthread_attr_t defaults;
    size_t         size = 0;
    pthread_attr_init(&defaults);
    pthread_attr_getstacksize(&defaults, &size);
    pthread_attr_destroy(&defaults);
    return size;
}

void run_on_stack(size_t size, void (*run)(void * argument, const char * low), void * argument) {
    const Stack    stack(size);
    CallOnStack    call = {run, argument, static_cast<const char *>(stack.low())};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack.low(), stack.size());
    pthread_t thread;
    int       refused;
    {
        const SignalsBlocked signals_go_to_the_callers_threads;
        refused = pthread_create(&thread, &attributes, run_call, &call);
    }
    pthread_attr_destroy(&attributes);
    if (refused) {
        throw std::system_error(refused, std::generic_category(), "a thread with a larger stack");
    }
    pthread_join(thread, nullptr);
}

void at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) { pthread_atfork(before, in_parent, in_child); }

std::optional<uint64_t> address_space_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return std::nullopt;
    }
    return limit.rlim_cur;
}

uint64_t main_memory() { return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_size(); }

size_t page_size() {
    static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

const void * find_bytes(const void * text, size_t text_size, const void * part, size_t part_size) noexcept {
    return memmem(text, text_size, part, part_size);
}

int32_t n_online_processors() { return static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)); }

std::FILE * open_file(const char * path, FileInfo & about) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return nullptr;
    }
    std::FILE * const file = fdopen(descriptor, "rb");
    if (!file) {
        const int error = errno;
        close(descriptor);
        errno = error;
        return nullptr;
    }
    struct stat status;
    if (fstat(descriptor, &status) == 0) {
        about = {S_ISREG(status.st_mode), S_ISDIR(status.st_mode), static_cast<uint64_t>(status.st_size)};
    }
    return file;
}

bool write_new_file(const char * path, const void * data, size_t size) {
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (descriptor < 0) {
        return false;
    }
    const auto * bytes = static_cast<const char *>(data);
    bool         done  = true;
    while (done && size > 0) {
        const ssize_t n = write(descriptor, bytes, size);
        done            = n > 0 || (n < 0 && errno == EINTR);
        bytes += n > 0 ? n : 0;
        size -= n > 0 ? static_cast<size_t>(n) : 0;
    }
    done            = done && fsync(descriptor) == 0;
    const int error = errno;
    done            = close(descriptor) == 0 && done;
    errno           = done ? errno : error ? error : EIO;
    return done;
}

void sync_folder(const char * path) {
    const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
}

void * map_shared_memory(int descriptor, size_t bytes) {
    void * const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

void unmap_shared_memory(void * memory, size_t bytes) { munmap(memory, bytes); }

void close_descriptor(int descriptor) { close(descriptor); }

void signal_wake_descriptor(const WakeDescriptor & descriptor) {
    // An eventfd takes exactly eight bytes; a pipe takes any number. At most one signal is pending, so neither can be
    // full.
    const uint64_t one = 1;
    (void) !write(descriptor.write, &one, sizeof(one));
}

void drain_wake_descriptor(const WakeDescriptor & descriptor) {
    uint64_t signal;
    (void) !read(descriptor.read, &signal, sizeof(signal));
}

void close_wake_descriptor(const WakeDescriptor & descriptor) {
    close(descriptor.read);
    if (descriptor.write != descriptor.read) {
        close(descriptor.write);
    }
}

const char * const LIBRARY_PREFIX = "lib";
const char * const LIBRARY_SUFFIX = ".so";  // of ggml's backends, on macOS as well

void * open_library(const char * path, std::string & refusal) {
    void * const       library  = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char * const messages = library ? nullptr : dlerror();
    refusal                     = library ? "" : messages ? messages : "the system's loader gave no reason";
    return library;
}

void close_library(void * library) { dlclose(library); }

void * symbol_of_library(void * library, const char * name) { return dlsym(library, name); }

}  // namespace pyg::platform

void * pyg_symbol_of_library_at(const void * inside, const char * name, const char ** library) {
    Dl_info about;
    *library = nullptr;
    if (!dladdr(inside, &about)) {
        return nullptr;
    }
    *library = about.dli_fname;
    // The caller keeps the library loaded, so this handle can be closed at once.
    void * const handle = dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void * const symbol = handle ? dlsym(handle, name) : nullptr;
    if (handle) {
        dlclose(handle);
    }
    return symbol;
}
