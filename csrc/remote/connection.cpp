#include "remote/connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

namespace {

// First byte of everything a server sends: heartbeats while it computes, then a response.
constexpr uint8_t HEARTBEAT = 0;
constexpr uint8_t RESPONSE  = 1;

// Writing to a closed socket must not raise SIGPIPE.
#ifdef MSG_NOSIGNAL
constexpr int NO_SIGPIPE = MSG_NOSIGNAL;
#else
constexpr int NO_SIGPIPE = 0;
#endif

struct Numbers {
    std::mutex                                    mutex;
    int                                           last = 0;
    std::map<int, std::weak_ptr<pyg::Connection>> connections;
};

Numbers & numbers() {
    static auto * const all = new Numbers;  // never destroyed: a connection may outlive static objects
    return *all;
}

void set_option(int socket, int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));  // optional: the connection works without it
}

// Enable keepalive, to detect a host that vanishes (no power, no network) even if nothing waits for it.
void set_keepalive(int socket, pyg::Connection::Role role) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
#endif
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
#ifdef TCP_USER_TIMEOUT
    // Unacknowledged heartbeats to a lost client are no idle time for keepalive. Not for a client, which has
    // heartbeat_timeout_s: this option would close a connection to a server that does not read while it computes.
    if (role == pyg::Connection::SERVER) {
        set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
    }
#else
    (void) role;
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

// Skip the bytes that were sent. Return true if any are left.
bool advance(iovec *& parts, int & n_parts, size_t n_sent) {
    while (n_parts > 0 && n_sent >= parts->iov_len) {
        n_sent -= parts->iov_len;
        parts++;
        n_parts--;
    }
    if (n_parts > 0) {
        parts->iov_base = static_cast<char *>(parts->iov_base) + n_sent;
        parts->iov_len -= n_sent;
    }
    return n_parts > 0;
}

}  // namespace

namespace pyg {

std::shared_ptr<Connection> Connection::adopt(int socket, const std::string & peer, Role role,
                                              double heartbeat_timeout_s) {
    Numbers &                   all = numbers();
    std::lock_guard<std::mutex> lock(all.mutex);
    const int                   number = ++all.last;
    std::shared_ptr<Connection> connection(new Connection(socket, peer, role, heartbeat_timeout_s, number));
    all.connections[number] = connection;
    return connection;
}

std::shared_ptr<Connection> Connection::take(int number) {
    Numbers &                   all = numbers();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto                  found      = all.connections.find(number);
    std::shared_ptr<Connection> connection = found == all.connections.end() ? nullptr : found->second.lock();
    all.connections.erase(number);
    return connection;
}

Connection::Connection(int socket, std::string peer, Role role, double heartbeat_timeout_s, int number)
    : socket_(socket), peer_(std::move(peer)), role_(role), heartbeat_timeout_s_(heartbeat_timeout_s), number_(number) {
    set_keepalive(socket_, role_);
    set_timeouts(socket_, heartbeat_timeout_s_);
}

Connection::~Connection() {
    {
        std::lock_guard<std::mutex> lock(numbers().mutex);
        numbers().connections.erase(number_);
    }
    ::close(socket_);
}

std::string Connection::endpoint() const {
    std::string name = peer_;
    std::replace(name.begin(), name.end(), ':', '|');  // upstream parses the number after the first colon
    return name + ":" + std::to_string(number_);
}

bool Connection::send(iovec * parts, int n_parts) {
    bool more = advance(parts, n_parts, 0);
    while (more && !is_lost()) {
        msghdr message     = {};
        message.msg_iov    = parts;
        message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(n_parts);
        const ssize_t n    = sendmsg(socket_, &message, NO_SIGPIPE);
        if (n >= 0) {
            more = advance(parts, n_parts, static_cast<size_t>(n));
        } else if (errno != EINTR && !((errno == EAGAIN || errno == EWOULDBLOCK) && has_heartbeat())) {
            disconnect_on_error("sending to it");
        }
    }
    return !more && !is_lost();
}

bool Connection::receive(void * dst, size_t size) {
    auto * at = static_cast<char *>(dst);
    while (size > 0 && !is_lost()) {
        const ssize_t n = recv(socket_, at, size, 0);
        if (n > 0) {
            at += n;
            size -= static_cast<size_t>(n);
        } else if (n == 0) {
            disconnect("it has closed the connection");
        } else if (errno != EINTR) {
            disconnect_on_error("waiting for it");
        }
    }
    return size == 0 && !is_lost();
}

bool Connection::receive_response_size(uint64_t & size) {
    uint8_t kind = HEARTBEAT;
    while (kind == HEARTBEAT) {
        if (!receive(&kind, sizeof(kind))) {
            return false;
        }
    }
    if (kind != RESPONSE) {
        disconnect("it sent malformed data");
        return false;
    }
    return receive(&size, sizeof(size));
}

// Return true if the peer, which does not read, has sent heartbeats.
bool Connection::has_heartbeat() {
    uint8_t       heartbeats[256];
    const ssize_t n = recv(socket_, heartbeats, sizeof(heartbeats), MSG_DONTWAIT);
    return n > 0 && std::all_of(heartbeats, heartbeats + n, [](uint8_t heartbeat) { return heartbeat == HEARTBEAT; });
}

void Connection::send_heartbeat() {
    std::lock_guard<std::mutex> lock(send_mutex_);
    (void) !::send(socket_, &HEARTBEAT, sizeof(HEARTBEAT), NO_SIGPIPE | MSG_DONTWAIT);
}

bool Connection::send_response(uint64_t size, const void * body) {
    std::lock_guard<std::mutex> lock(send_mutex_);
    uint8_t                     kind    = RESPONSE;
    iovec                       parts[] = {
        {&kind, sizeof(kind)}, {&size, sizeof(size)}, {const_cast<void *>(body), static_cast<size_t>(size)}};
    return send(parts, 3);
}

void Connection::disconnect(const std::string & reason) {
    std::lock_guard<std::mutex> lock(reason_mutex_);
    if (!lost_) {
        reason_ = reason;
        lost_   = true;
        shutdown(socket_, SHUT_RDWR);
    }
}

void Connection::disconnect_on_error(const char * action) {
    char text[128];
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        std::snprintf(text, sizeof(text), "it has sent no heartbeat for %g s", heartbeat_timeout_s_);
        disconnect(text);
    } else {
        disconnect(std::string(action) + " failed: " + std::strerror(errno));
    }
}

std::string Connection::disconnect_reason() const {
    std::lock_guard<std::mutex> lock(reason_mutex_);
    return reason_;
}

bool Connection::check_peer() {
    uint8_t       next;
    const ssize_t n = recv(socket_, &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) {
        disconnect("it has closed the connection");
    } else if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        disconnect_on_error("waiting for it");
    }
    return is_lost();
}

}  // namespace pyg
