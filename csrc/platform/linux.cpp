#include "platform/platform.hpp"

#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#ifdef __GLIBC__
#    include <malloc.h>
#endif

namespace {

// Seal the size: shrinking the memory would end the other process with SIGBUS. The constants are from linux/fcntl.h,
// which conflicts with fcntl.h.
void seal_size(int fd) {
    constexpr int ADD_SEALS = 1024 + 9, SEAL = 1, SHRINK = 2, GROW = 4;
    fcntl(fd, ADD_SEALS, SEAL | SHRINK | GROW);
}

}  // namespace

namespace pyg::platform {

void name_this_thread(const char * name) { pthread_setname_np(pthread_self(), name); }

void take_lowest_priority() {
    const sched_param none = {};
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

void end_with_parent(int32_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);  // the parent exited before prctl
    }
}

const bool RELEASES_MAPPED_PAGES = true;

void return_freed_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

std::vector<int> allowed_processors() {
    constexpr int          MOST = 1 << 16;
    std::vector<cpu_set_t> sets(MOST / CPU_SETSIZE, cpu_set_t{});  // not CPU_ALLOC, which returns null without memory
    const size_t           size = sets.size() * sizeof(cpu_set_t);
    std::vector<int>       processors;
    // Affinity of the main thread: the calling thread may be bound to a single core.
    if (sched_getaffinity(getpid(), size, sets.data()) == 0) {
        for (int i = 0; i < MOST; i++) {
            if (CPU_ISSET_S(i, size, sets.data())) {
                processors.push_back(i);
            }
        }
    }
    return processors;
}

int new_shared_memory(size_t bytes) {
    // glibc has no wrapper before 2.27.
    const int fd = static_cast<int>(syscall(SYS_memfd_create, "pyggml", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0) {
        return -1;
    }
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    seal_size(fd);
    return fd;
}

bool open_wake_descriptor(WakeDescriptor & out) {
    out.read = out.write = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return out.read >= 0;
}

}  // namespace pyg::platform
