// TCP connection to a remote host, or from a client that this process computes for.
#pragma once

#include "boundary/non_copyable.hpp"
#include "platform/platform.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace pyg {

// Both sides have authenticated each other in Python before a connection is made. A lost connection stays lost.
class Connection : NonCopyable {
  public:
    enum Role { CLIENT, SERVER };

    // Take ownership of a connected socket. `heartbeat_timeout_s`: how long the peer may send no heartbeat while this
    // side waits for it; 0: no limit.
    static std::shared_ptr<Connection> adopt(int socket, const std::string & peer, Role role,
                                             double heartbeat_timeout_s);

    // Return the connection with this number, once; then null. For upstream's connect.
    static std::shared_ptr<Connection> take(int number);

    ~Connection();

    // Upstream's name of the peer, "host|port:number". Unique for each connection, so that upstream reuses nothing from
    // an earlier connection to the same host.
    std::string endpoint() const;

    const std::string & peer() const { return peer_; }
    Role                role() const { return role_; }

    // These return false when the connection is lost.
    bool send(platform::Bytes * parts, int n_parts);
    bool receive(void * dst, size_t size);

    // Skip heartbeats and read the size of the peer's next response.
    bool receive_response_size(uint64_t & size);

    // Send a heartbeat, unless the peer does not read and its buffer is full.
    void send_heartbeat();

    // Send a response, to be read with receive_response_size.
    bool send_response(uint64_t size, const void * body);

    void        disconnect(const std::string & reason);
    bool        is_lost() const { return lost_.load(std::memory_order_acquire); }
    std::string disconnect_reason() const;

    // Return true if the connection is lost. Also detects that the peer has closed it while nothing waited for it.
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
    std::mutex         send_mutex_;  // responses and heartbeats must not interleave
    mutable std::mutex reason_mutex_;
    std::string        reason_;
    std::atomic<bool>  lost_{false};
};

}  // namespace pyg
