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

// What a server's bytes begin with: while it computes it shows that it lives, and sooner or later it answers.
constexpr uint8_t SIGN_OF_LIFE = 0;
constexpr uint8_t ANSWER       = 1;

// A socket whose peer is gone must not end the process with SIGPIPE.
#ifdef MSG_NOSIGNAL
constexpr int QUIET = MSG_NOSIGNAL;
#else
constexpr int QUIET = 0;
#endif

struct Numbers {
    std::mutex                              mutex;
    int                                     last = 0;
    std::map<int, std::weak_ptr<pyg::Link>> links;
};

Numbers & numbers() {
    static auto * const all = new Numbers;  // never destroyed: a link may outlive static objects
    return *all;
}

void set_option(int socket, int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));  // without it the link still works
}

// A host that vanishes without a word (no power, no network) is noticed even if nobody waits for it.
void watch_for_the_end(int socket, pyg::Link::Role role) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
#endif
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
#ifdef TCP_USER_TIMEOUT
    // Signs of life to a client that is gone wait for it, and are no idle time. A client has silence_s instead: this
    // would end a connection to a server that reads nothing for so long because it computes.
    if (role == pyg::Link::SERVER) {
        set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
    }
#else
    (void) role;
#endif
#ifdef SO_NOSIGPIPE
    set_option(socket, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
}

void limit_waiting(int socket, double seconds) {
    timeval limit;
    limit.tv_sec  = static_cast<time_t>(seconds);
    limit.tv_usec = static_cast<suseconds_t>(1e6 * (seconds - static_cast<double>(limit.tv_sec)));
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

// Removes what has been sent; returns whether anything is left.
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

std::shared_ptr<Link> Link::take_over(int socket, const std::string & peer, Role role, double silence_s) {
    Numbers &                   all = numbers();
    std::lock_guard<std::mutex> lock(all.mutex);
    const int                   number = ++all.last;
    std::shared_ptr<Link>       link(new Link(socket, peer, role, silence_s, number));
    all.links[number] = link;
    return link;
}

std::shared_ptr<Link> Link::take(int number) {
    Numbers &                   all = numbers();
    std::lock_guard<std::mutex> lock(all.mutex);
    const auto                  found = all.links.find(number);
    std::shared_ptr<Link>       link  = found == all.links.end() ? nullptr : found->second.lock();
    all.links.erase(number);
    return link;
}

Link::Link(int socket, std::string peer, Role role, double silence_s, int number)
    : socket_(socket), peer_(std::move(peer)), role_(role), silence_s_(silence_s), number_(number) {
    watch_for_the_end(socket_, role_);
    limit_waiting(socket_, silence_s_);
}

Link::~Link() {
    {
        std::lock_guard<std::mutex> lock(numbers().mutex);
        numbers().links.erase(number_);
    }
    ::close(socket_);
}

std::string Link::endpoint() const {
    std::string name = peer_;
    std::replace(name.begin(), name.end(), ':', '|');  // upstream reads the number after the first colon
    return name + ":" + std::to_string(number_);
}

bool Link::send(iovec * parts, int n_parts) {
    bool more = advance(parts, n_parts, 0);
    while (more && !is_lost()) {
        msghdr message     = {};
        message.msg_iov    = parts;
        message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(n_parts);
        const ssize_t n    = sendmsg(socket_, &message, QUIET);
        if (n >= 0) {
            more = advance(parts, n_parts, static_cast<size_t>(n));
        } else if (errno != EINTR && !((errno == EAGAIN || errno == EWOULDBLOCK) && hears_life())) {
            lose_by_error("sending to it");
        }
    }
    return !more && !is_lost();
}

bool Link::receive(void * dst, size_t size) {
    auto * at = static_cast<char *>(dst);
    while (size > 0 && !is_lost()) {
        const ssize_t n = recv(socket_, at, size, 0);
        if (n > 0) {
            at += n;
            size -= static_cast<size_t>(n);
        } else if (n == 0) {
            lose("it has closed the connection");
        } else if (errno != EINTR) {
            lose_by_error("waiting for it");
        }
    }
    return size == 0 && !is_lost();
}

bool Link::receive_answer_size(uint64_t & size) {
    uint8_t kind = SIGN_OF_LIFE;
    while (kind == SIGN_OF_LIFE) {
        if (!receive(&kind, sizeof(kind))) {
            return false;
        }
    }
    if (kind != ANSWER) {
        lose("what it sends makes no sense");
        return false;
    }
    return receive(&size, sizeof(size));
}

// Whether the peer, which does not read what is sent to it, at least computes.
bool Link::hears_life() {
    uint8_t       signs[256];
    const ssize_t n = recv(socket_, signs, sizeof(signs), MSG_DONTWAIT);
    return n > 0 && std::all_of(signs, signs + n, [](uint8_t sign) { return sign == SIGN_OF_LIFE; });
}

void Link::show_life() {
    std::lock_guard<std::mutex> lock(sending_);
    (void) !::send(socket_, &SIGN_OF_LIFE, sizeof(SIGN_OF_LIFE), QUIET | MSG_DONTWAIT);
}

bool Link::send_answer(uint64_t size, const void * body) {
    std::lock_guard<std::mutex> lock(sending_);
    uint8_t                     kind    = ANSWER;
    iovec                       parts[] = {
        {&kind, sizeof(kind)}, {&size, sizeof(size)}, {const_cast<void *>(body), static_cast<size_t>(size)}};
    return send(parts, 3);
}

void Link::lose(const std::string & why) {
    std::lock_guard<std::mutex> lock(why_mutex_);
    if (!lost_) {
        why_  = why;
        lost_ = true;
        shutdown(socket_, SHUT_RDWR);
    }
}

void Link::lose_by_error(const char * action) {
    char text[128];
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        std::snprintf(text, sizeof(text), "it has shown no sign of life for %g s", silence_s_);
        lose(text);
    } else {
        lose(std::string(action) + " failed: " + std::strerror(errno));
    }
}

std::string Link::why_lost() const {
    std::lock_guard<std::mutex> lock(why_mutex_);
    return why_;
}

bool Link::notice() {
    uint8_t       next;
    const ssize_t n = recv(socket_, &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) {
        lose("it has closed the connection");
    } else if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        lose_by_error("waiting for it");
    }
    return is_lost();
}

}  // namespace pyg
