// Replacement of upstream's transport.h: TCP only, over authenticated sockets.
//
// Upstream's client aborts the process when a connection breaks: its dispatcher asserts on its own thread. So the
// client's endpoint never fails. When the host is lost, requests are dropped and get made-up responses of the expected
// size; results are discarded, because require_hosts() throws before they are used.
#include "transport.h"

#include "boundary/non_copyable.hpp"
#include "remote/connection.hpp"
#include "remote/protocol.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace {

using pyg::Connection;

constexpr auto HEARTBEAT_INTERVAL = std::chrono::seconds(1);

// Upstream sends and receives each message in three calls.
enum Part { COMMAND, SIZE, BODY };

// One end of a connection, as upstream uses it.
class Endpoint {
  public:
    virtual ~Endpoint()                               = default;
    virtual bool send(const void * data, size_t size) = 0;
    virtual bool receive(void * dst, size_t size)     = 0;
};

class ClientEndpoint : public Endpoint {
  public:
    explicit ClientEndpoint(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

    bool send(const void * data, size_t size) override {
        switch (part_) {
        case COMMAND:
            std::memcpy(&command_, data, sizeof(command_));
            part_ = SIZE;
            break;
        case SIZE:
            std::memcpy(&n_request_, data, sizeof(n_request_));
            part_ = BODY;
            break;
        case BODY:
            n_response_   = pyg::response_size(command_, data, size);
            size_is_next_ = true;
            if (!pyg::is_blocked(command_)) {
                send_message(data, size);
            }
            part_ = COMMAND;
        }
        return true;
    }

    bool receive(void * dst, size_t size) override {
        if (size_is_next_) {
            size_is_next_             = false;
            const uint64_t n_response = receive_size();
            std::memcpy(dst, &n_response, std::min(size, sizeof(n_response)));
        } else if (pyg::is_blocked(command_) || !connection_->receive(dst, size)) {
            pyg::make_fallback_response(command_, dst, size);
        }
        return true;
    }

  private:
    void send_message(const void * body, size_t size) {
        pyg::platform::Bytes parts[] = {
            {&command_, sizeof(command_)}, {&n_request_, sizeof(n_request_)}, {const_cast<void *>(body), size}};
        connection_->send(parts, 3);
    }

    // Always the size that upstream expects.
    uint64_t receive_size() {
        uint64_t n_response = n_response_;
        if (!pyg::is_blocked(command_) && connection_->receive_response_size(n_response) && n_response != n_response_) {
            connection_->disconnect("its response has an unexpected size");
        }
        return n_response_;
    }

    std::shared_ptr<Connection> connection_;
    Part                        part_         = COMMAND;
    uint8_t                     command_      = 0;
    uint64_t                    n_request_    = 0;
    uint64_t                    n_response_   = 0;
    bool                        size_is_next_ = false;
};

// Thread that sends heartbeats to the client while this process computes, even for minutes. Silent between messages,
// when the client does not read.
class HeartbeatThread : pyg::NonCopyable {
  public:
    explicit HeartbeatThread(Connection & connection) : connection_(connection), thread_([this] { run(); }) {}
    ~HeartbeatThread() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    void set_busy(bool busy) {
        std::lock_guard<std::mutex> lock(mutex_);
        busy_ = busy;
    }

  private:
    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!changed_.wait_for(lock, HEARTBEAT_INTERVAL, [this] { return stopping_; })) {
            if (busy_) {
                connection_.send_heartbeat();
            }
        }
    }

    Connection &            connection_;
    std::mutex              mutex_;
    std::condition_variable changed_;
    bool                    busy_     = false;
    bool                    stopping_ = false;
    std::thread             thread_;
};

class ServerEndpoint : public Endpoint {
  public:
    explicit ServerEndpoint(std::shared_ptr<Connection> connection)
        : connection_(std::move(connection)), heartbeat_(*connection_) {}

    bool receive(void * dst, size_t size) override {
        if (part_ == COMMAND) {
            heartbeat_.set_busy(false);
        }
        const bool received = connection_->receive(dst, size) && (part_ != SIZE || may_receive(dst));
        heartbeat_.set_busy(true);
        part_ = part_ == BODY ? COMMAND : static_cast<Part>(part_ + 1);
        return received;
    }

    // A response is sent as its size and its body.
    bool send(const void * data, size_t size) override {
        if (size_is_next_) {
            size_is_next_ = false;
            return !connection_->is_lost();
        }
        size_is_next_ = true;
        return connection_->send_response(size, data);
    }

  private:
    static bool may_receive(const void * size) {
        uint64_t n_request;
        std::memcpy(&n_request, size, sizeof(n_request));
        return pyg::may_receive(n_request);
    }

    std::shared_ptr<Connection> connection_;
    HeartbeatThread             heartbeat_;
    Part                        part_         = COMMAND;
    bool                        size_is_next_ = true;
};

}  // namespace

struct socket_t::impl {
    std::unique_ptr<Endpoint> end;
};

socket_t::socket_t(std::unique_ptr<impl> p) : pimpl(std::move(p)) {}

socket_t::~socket_t() = default;

bool socket_t::send_data(const void * data, size_t size) { return pimpl->end->send(data, size); }
bool socket_t::recv_data(void * data, size_t size) { return pimpl->end->receive(data, size); }
bool socket_t::flush() { return true; }

// Capabilities for transports other than TCP: none.
void socket_t::get_caps(uint8_t * local_caps) { std::memset(local_caps, 0, RPC_CONN_CAPS_SIZE); }
void socket_t::update_caps(const uint8_t *) {}

// `port` is the number of the connection, from Connection::endpoint(). Only connections of this process exist: a client
// cannot make a server connect to a third host.
socket_ptr socket_t::connect(const char *, int port) {
    std::shared_ptr<Connection> connection = Connection::take(port);
    if (!connection) {
        return nullptr;
    }
    auto p = std::make_unique<impl>();
    if (connection->role() == Connection::SERVER) {
        p->end = std::make_unique<ServerEndpoint>(std::move(connection));
    } else {
        p->end = std::make_unique<ClientEndpoint>(std::move(connection));
    }
    return socket_ptr(new socket_t(std::move(p)));
}

// Only the supervisor in Python listens, and authenticates clients.
socket_ptr socket_t::create_server(const char *, int) { return nullptr; }
socket_ptr socket_t::accept() { return nullptr; }

bool rpc_transport_init() { return true; }
void rpc_transport_shutdown() {}
