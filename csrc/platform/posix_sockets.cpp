// Sockets of Linux and macOS.
#include "platform/platform.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace {

#ifdef MSG_NOSIGNAL
constexpr int NO_SIGPIPE = MSG_NOSIGNAL;
#else
constexpr int NO_SIGPIPE = 0;  // keep_alive() sets SO_NOSIGPIPE, and Python ignores SIGPIPE
#endif

void set_option(int socket, int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));  // optional: the connection works without it
}

}  // namespace

namespace pyg::platform {

bool open_socket_pair(int & first, int & second) {
    int ends[2];
#ifdef SOCK_CLOEXEC  // another thread may start a program at any time
    constexpr int KIND = SOCK_STREAM | SOCK_CLOEXEC;
#else
    constexpr int KIND = SOCK_STREAM;
#endif
    if (socketpair(AF_UNIX, KIND, 0, ends) != 0) {
        return false;
    }
    for (const int end : ends) {
        fcntl(end, F_SETFD, FD_CLOEXEC);
    }
    first  = ends[0];
    second = ends[1];
    return true;
}

std::ptrdiff_t send_bytes(int socket, const void * data, size_t size) { return send(socket, data, size, NO_SIGPIPE); }

std::ptrdiff_t send_parts(int socket, const Bytes * parts, int n_parts) {
    constexpr int AT_ONCE = 8;  // the rest is sent by a further call
    iovec         vectors[AT_ONCE];
    const int     n = std::min(n_parts, AT_ONCE);
    std::transform(parts, parts + n, vectors, [](const Bytes & part) { return iovec{part.data, part.size}; });
    msghdr message     = {};
    message.msg_iov    = vectors;
    message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(n);
    return sendmsg(socket, &message, NO_SIGPIPE);
}

std::ptrdiff_t try_send(int socket, const void * data, size_t size) {
    return send(socket, data, size, NO_SIGPIPE | MSG_DONTWAIT);
}

std::ptrdiff_t receive(int socket, void * data, size_t size) { return recv(socket, data, size, 0); }

std::ptrdiff_t receive_all(int socket, void * data, size_t size) { return recv(socket, data, size, MSG_WAITALL); }

std::ptrdiff_t try_receive(int socket, void * data, size_t size) { return recv(socket, data, size, MSG_DONTWAIT); }

std::ptrdiff_t try_peek(int socket, void * data, size_t size) {
    return recv(socket, data, size, MSG_PEEK | MSG_DONTWAIT);
}

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK; }

void shut_down(int socket) { shutdown(socket, SHUT_RDWR); }

void close_socket(int socket) { close(socket); }

void keep_alive(int socket, [[maybe_unused]] bool limits_unacknowledged) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
#endif
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
#ifdef TCP_USER_TIMEOUT
    if (limits_unacknowledged) {
        set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
    }
#endif
#ifdef SO_NOSIGPIPE
    set_option(socket, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
}

void set_timeouts(int socket, double seconds) {
    timeval limit;
    limit.tv_sec  = static_cast<time_t>(seconds);
    limit.tv_usec = static_cast<suseconds_t>(1e6 * (seconds - static_cast<double>(limit.tv_sec)));
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

}  // namespace pyg::platform
