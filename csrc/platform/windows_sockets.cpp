// Sockets of Windows, and wake descriptors, which are sockets there: event loops wait for nothing else. Compiles with
// MinGW's headers (make cross-check); never run.
#include "platform/platform.hpp"

// clang-format off: in this order
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>
// clang-format on
#include <mstcpip.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace {

// Handles of sockets fit 32 bits, and Python passes them as numbers.
SOCKET of(int socket) { return static_cast<SOCKET>(socket); }

// Before the first socket, once.
bool start_sockets() {
    static const bool started = [] {
        WSADATA about;
        return WSAStartup(MAKEWORD(2, 2), &about) == 0;
    }();
    return started;
}

int errno_of(int error) {
    switch (error) {
    case WSAEWOULDBLOCK:
    case WSAETIMEDOUT:
        return EAGAIN;
    case WSAEINTR:
        return EINTR;
    case WSAECONNRESET:
        return ECONNRESET;
    case WSAECONNABORTED:
        return ECONNABORTED;
    case WSAENOTCONN:
        return ENOTCONN;
    case WSAEMFILE:
        return EMFILE;
    case WSAENOBUFS:
        return ENOMEM;
    default:
        return EIO;
    }
}

// Set errno, and return the result of a call.
std::ptrdiff_t checked(int result) {
    if (result == SOCKET_ERROR) {
        errno = errno_of(WSAGetLastError());
        return -1;
    }
    return result;
}

int length(size_t size) { return static_cast<int>(std::min(size, size_t{INT_MAX})); }

// True if the socket can be read, or written, without waiting.
bool is_ready(int socket, short events) {
    WSAPOLLFD poll = {};
    poll.fd        = of(socket);
    poll.events    = events;
    return WSAPoll(&poll, 1, 0) > 0;
}

std::ptrdiff_t would_have_waited() {
    errno = EAGAIN;
    return -1;
}

void set_option(int socket, int level, int name, DWORD value) {
    setsockopt(of(socket), level, name, reinterpret_cast<const char *>(&value), sizeof(value));
}

// A datagram socket of this machine that is connected to itself; INVALID_SOCKET on failure.
SOCKET connected_to_itself() {
    if (!start_sockets()) {
        return INVALID_SOCKET;
    }
    const SOCKET made = WSASocketW(AF_INET, SOCK_DGRAM, IPPROTO_UDP, nullptr, 0, WSA_FLAG_NO_HANDLE_INHERIT);
    if (made == INVALID_SOCKET) {
        return made;
    }
    sockaddr_in here     = {};
    here.sin_family      = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto * const address = reinterpret_cast<sockaddr *>(&here);
    int          size    = sizeof(here);
    u_long       on      = 1;
    if (bind(made, address, size) != 0 || getsockname(made, address, &size) != 0 || connect(made, address, size) != 0 ||
        ioctlsocket(made, FIONBIO, &on) != 0) {
        closesocket(made);
        return INVALID_SOCKET;
    }
    return made;
}

}  // namespace

namespace pyg::platform {

// For isolation, which needs shared memory as well.
bool open_socket_pair(int &, int &) {
    errno = ENOTSUP;
    return false;
}

std::ptrdiff_t send_bytes(int socket, const void * data, size_t size) {
    return checked(send(of(socket), static_cast<const char *>(data), length(size), 0));
}

std::ptrdiff_t send_parts(int socket, const Bytes * parts, int n_parts) {
    constexpr int AT_ONCE = 8;  // the rest is sent by a further call
    WSABUF        buffers[AT_ONCE];
    const int     n = std::min(n_parts, AT_ONCE);
    std::transform(parts, parts + n, buffers, [](const Bytes & part) {
        return WSABUF{static_cast<ULONG>(length(part.size)), static_cast<CHAR *>(part.data)};
    });
    // A part beyond the limit of a length must be the last, or bytes would be left out between two parts.
    const auto too_long = std::find_if(parts, parts + n, [](const Bytes & part) { return part.size > INT_MAX; });
    const auto n_sent   = static_cast<DWORD>(std::min<std::ptrdiff_t>(too_long - parts + 1, n));
    DWORD      n_bytes  = 0;
    const int  result   = WSASend(of(socket), buffers, n_sent, &n_bytes, 0, nullptr, nullptr);
    return result == 0 ? static_cast<std::ptrdiff_t>(n_bytes) : checked(result);
}

std::ptrdiff_t try_send(int socket, const void * data, size_t size) {
    return is_ready(socket, POLLWRNORM) ? send_bytes(socket, data, size) : would_have_waited();
}

std::ptrdiff_t receive(int socket, void * data, size_t size) {
    return checked(recv(of(socket), static_cast<char *>(data), length(size), 0));
}

std::ptrdiff_t receive_all(int socket, void * data, size_t size) {
    return checked(recv(of(socket), static_cast<char *>(data), length(size), MSG_WAITALL));
}

std::ptrdiff_t try_receive(int socket, void * data, size_t size) {
    return is_ready(socket, POLLRDNORM) ? receive(socket, data, size) : would_have_waited();
}

std::ptrdiff_t try_peek(int socket, void * data, size_t size) {
    return is_ready(socket, POLLRDNORM) ? checked(recv(of(socket), static_cast<char *>(data), length(size), MSG_PEEK))
                                        : would_have_waited();
}

bool would_wait() { return errno == EAGAIN; }

void shut_down(int socket) { shutdown(of(socket), SD_BOTH); }

void close_socket(int socket) { closesocket(of(socket)); }

void keep_alive(int socket, bool limits_unacknowledged) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    tcp_keepalive times     = {};
    times.onoff             = 1;
    times.keepalivetime     = 15000;
    times.keepaliveinterval = 5000;
    DWORD n_bytes           = 0;
    WSAIoctl(of(socket), SIO_KEEPALIVE_VALS, &times, sizeof(times), nullptr, 0, &n_bytes, nullptr, nullptr);
    if (limits_unacknowledged) {
        constexpr int MAX_RETRANSMISSION_S = 5;  // TCP_MAXRT, in seconds
        set_option(socket, IPPROTO_TCP, MAX_RETRANSMISSION_S, 30);
    }
}

void set_timeouts(int socket, double seconds) {
    const auto milliseconds = static_cast<DWORD>(1e3 * seconds);
    set_option(socket, SOL_SOCKET, SO_RCVTIMEO, milliseconds);
    set_option(socket, SOL_SOCKET, SO_SNDTIMEO, milliseconds);
}

bool open_wake_descriptor(WakeDescriptor & out) {
    const SOCKET made = connected_to_itself();
    if (made == INVALID_SOCKET) {
        errno = errno_of(WSAGetLastError());
        return false;
    }
    out.read = out.write = static_cast<int>(made);
    return true;
}

void signal_wake_descriptor(const WakeDescriptor & descriptor) {
    const char one = 1;
    send(of(descriptor.write), &one, 1, 0);
}

void drain_wake_descriptor(const WakeDescriptor & descriptor) {
    char signal;
    recv(of(descriptor.read), &signal, 1, 0);
}

void close_wake_descriptor(const WakeDescriptor & descriptor) { closesocket(of(descriptor.read)); }

}  // namespace pyg::platform
