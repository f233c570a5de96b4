// A TCP connection between this process and one on another host that computes for it, or for which it computes.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace pyg {

// Both sides have proved in Python that they know the key before a link is made. Once it is lost, it stays lost.
class Connection {
  public:
    enum Role { CLIENT, SERVER };

    // Takes over a connected socket. `silence_s`: how long the peer may show no sign of life while this side waits for
    // it; 0: no limit.
    static std::shared_ptr<Connection> adopt(int socket, const std::string & peer, Role role,
                                             double heartbeat_timeout_s);

    // The link with this number, for whom upstream connects with it: once, then null.
    static std::shared_ptr<Connection> take(int number);

    ~Connection();
    Connection(const Connection &)             = delete;
    Connection & operator=(const Connection &) = delete;

    // Upstream's name for the other end, "host|port:number": new for each link, so that nothing upstream remembers of
    // an earlier connection to the same host is used again.
    std::string endpoint() const;

    const std::string & peer() const { return peer_; }
    Role                role() const { return role_; }

    // All of these return false once the link is lost.
    bool send(iovec * parts, int n_parts);
    bool receive(void * dst, size_t size);

    // The peer's next answer begins here: passes over its signs of life and reads how many bytes follow.
    bool receive_response_size(uint64_t & size);

    // Tells the peer that this side is alive, unless its messages pile up unread.
    void send_heartbeat();

    // Sends an answer that receive_answer_size understands.
    bool send_response(uint64_t size, const void * body);

    void        disconnect(const std::string & reason);
    bool        is_lost() const { return lost_.load(std::memory_order_acquire); }
    std::string disconnect_reason() const;

    // Whether the peer has hung up while nobody was waiting for it; loses the link if so.
    bool check_peer();

  private:
    Connection(int socket, std::string peer, Role role, double heartbeat_timeout_s, int number);
    bool has_heartbeat();
    void disconnect_on_error(const char * action);

    const int          socket_;
    const std::string  peer_;
    const Role         role_;
    const double       heartbeat_timeout_s_;
    const int          number_;
    std::mutex         send_mutex_;  // an answer and a sign of life must not be mixed
    mutable std::mutex reason_mutex_;
    std::string        reason_;
    std::atomic<bool>  lost_{false};
};

}  // namespace pyg
