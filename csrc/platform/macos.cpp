#include "platform/platform.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <pthread/qos.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace pyg::platform {

void name_this_thread(const char * name) { pthread_setname_np(name); }

void take_lowest_priority() { pthread_set_qos_class_self_np(QOS_CLASS_BACKGROUND, 0); }

void end_with_parent(int32_t parent) {
    if (getppid() != parent) {
        _exit(1);
    }
}

const bool RELEASES_MAPPED_PAGES = false;

void return_freed_memory() {}

std::vector<int> allowed_processors() { return {}; }

int new_shared_memory(size_t bytes) {
    char name[32];
    std::snprintf(name, sizeof(name), "/pyggml.%d.%x", static_cast<int>(getpid()), arc4random());
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        return -1;
    }
    shm_unlink(name);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

bool open_wake_descriptor(WakeDescriptor & out) {
    int ends[2];
    if (pipe(ends) != 0) {
        return false;
    }
    for (const int end : ends) {
        fcntl(end, F_SETFD, FD_CLOEXEC);
        fcntl(end, F_SETFL, O_NONBLOCK);
    }
    out = {ends[0], ends[1]};
    return true;
}

}  // namespace pyg::platform
