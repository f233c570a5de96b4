#include "remote/connection.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

namespace {

using pyg::platform::Bytes;

// First byte of everything a server sends: heartbeats while it computes, then a response.
constexpr uint8_t HEARTBEAT = 0;
constexpr uint8_t RESPONSE  = 1;

struct Numbers {
    std::mutex                                    mutex;
    int                                           last = 0;
    std::map<int, std::weak_ptr<pyg::Connection>> connections;
};

Numbers & numbers() {
    static auto * const all = new Numbers;  // never destroyed: a connection may outlive static objects
    return *all;
}

// Skip the bytes that were sent. Return true if any are left.
bool advance(Bytes *& parts, int & n_parts, size_t n_sent) {
    while (n_parts > 0 && n_sent >= parts->size) {
        n_sent -= parts->size;
        parts++;
        n_parts--;
    }
    if (n_parts > 0) {
        parts->data = static_cast<char *>(parts->data) + n_sent;
        parts->size -= n_sent;
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
    // Unacknowledged heartbeats to a lost client are no idle time for keepalive. Not for a client, which has
    // heartbeat_timeout_s: the limit would close a connection to a server that does not read while it computes.
    platform::keep_alive(socket_, /*limits_unacknowledged =*/role_ == SERVER);
    platform::set_timeouts(socket_, heartbeat_timeout_s_);
}

Connection::~Connection() {
    {
        std::lock_guard<std::mutex> lock(numbers().mutex);
        numbers().connections.erase(number_);
    }
    platform::close_socket(socket_);
}

std::string Connection::endpoint() const {
    std::string name = peer_;
    std::replace(name.begin(), name.end(), ':', '|');  // upstream parses the number after the first colon
    return name + ":" + std::to_string(number_);
}

bool Connection::send(Bytes * parts, int n_parts) {
    bool more = advance(parts, n_parts, 0);
    while (more && !is_lost()) {
        const std::ptrdiff_t n = platform::send_parts(socket_, parts, n_parts);
        if (n >= 0) {
            more = advance(parts, n_parts, static_cast<size_t>(n));
        } else if (errno != EINTR && !(platform::would_wait() && has_heartbeat())) {
            disconnect_on_error("sending to it");
        }
    }
    return !more && !is_lost();
}

bool Connection::receive(void * dst, size_t size) {
    auto * at = static_cast<char *>(dst);
    while (size > 0 && !is_lost()) {
        const std::ptrdiff_t n = platform::receive(socket_, at, size);
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
    uint8_t              heartbeats[256];
    const std::ptrdiff_t n = platform::try_receive(socket_, heartbeats, sizeof(heartbeats));
    return n > 0 && std::all_of(heartbeats, heartbeats + n, [](uint8_t heartbeat) { return heartbeat == HEARTBEAT; });
}

void Connection::send_heartbeat() {
    std::lock_guard<std::mutex> lock(send_mutex_);
    (void) platform::try_send(socket_, &HEARTBEAT, sizeof(HEARTBEAT));
}

bool Connection::send_response(uint64_t size, const void * body) {
    std::lock_guard<std::mutex> lock(send_mutex_);
    uint8_t                     kind    = RESPONSE;
    Bytes                       parts[] = {
        {&kind, sizeof(kind)}, {&size, sizeof(size)}, {const_cast<void *>(body), static_cast<size_t>(size)}};
    return send(parts, 3);
}

void Connection::disconnect(const std::string & reason) {
    std::lock_guard<std::mutex> lock(reason_mutex_);
    if (!lost_) {
        reason_ = reason;
        lost_   = true;
        platform::shut_down(socket_);
    }
}

void Connection::disconnect_on_error(const char * action) {
    char text[128];
    if (platform::would_wait()) {
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
    uint8_t              next;
    const std::ptrdiff_t n = platform::try_peek(socket_, &next, sizeof(next));
    if (n == 0) {
        disconnect("it has closed the connection");
    } else if (n < 0 && !platform::would_wait() && errno != EINTR) {
        disconnect_on_error("waiting for it");
    }
    return is_lost();
}

}  // namespace pyg
