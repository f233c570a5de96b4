// Our implementation of upstream's transport.h: TCP only, over sockets on which both sides have proved that they know
// the key.
//
// Upstream's client ends the process when a connection breaks: its dispatcher asserts on a thread of its own. So the
// client's end never fails. Once the host is lost, requests go nowhere and get answers made here, of the size that
// upstream expects; what is computed from them is worthless, and require_hosts() throws before anybody sees it.
#include "transport.h"

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

using pyg::Link;

constexpr auto LIFE_EVERY = std::chrono::seconds(1);

// Upstream sends, and the server receives, each message in three calls.
enum Part { COMMAND, SIZE, BODY };

// One end of a link, as upstream uses it.
class End {
  public:
    virtual ~End()                                    = default;
    virtual bool send(const void * data, size_t size) = 0;
    virtual bool receive(void * dst, size_t size)     = 0;
};

class ClientEnd : public End {
  public:
    explicit ClientEnd(std::shared_ptr<Link> link) : link_(std::move(link)) {}

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
            n_answer_     = pyg::answer_size(command_, data, size);
            size_is_next_ = true;
            if (!pyg::is_kept_back(command_)) {
                send_message(data, size);
            }
            part_ = COMMAND;
        }
        return true;
    }

    bool receive(void * dst, size_t size) override {
        if (size_is_next_) {
            size_is_next_           = false;
            const uint64_t n_answer = receive_size();
            std::memcpy(dst, &n_answer, std::min(size, sizeof(n_answer)));
        } else if (pyg::is_kept_back(command_) || !link_->receive(dst, size)) {
            pyg::make_answer(command_, dst, size);
        }
        return true;
    }

  private:
    void send_message(const void * body, size_t size) {
        iovec parts[] = {
            {&command_, sizeof(command_)}, {&n_request_, sizeof(n_request_)}, {const_cast<void *>(body), size}};
        link_->send(parts, 3);
    }

    // What upstream expects, whatever the host says.
    uint64_t receive_size() {
        uint64_t n_answer = n_answer_;
        if (!pyg::is_kept_back(command_) && link_->receive_answer_size(n_answer) && n_answer != n_answer_) {
            link_->lose("its answer has another size than expected");
        }
        return n_answer_;
    }

    std::shared_ptr<Link> link_;
    Part                  part_         = COMMAND;
    uint8_t               command_      = 0;
    uint64_t              n_request_    = 0;
    uint64_t              n_answer_     = 0;
    bool                  size_is_next_ = false;
};

// While it lives, a thread shows the client at the other end that this process is alive, even if it computes for
// minutes. Silent between messages: the client does not listen then.
class LifeSigns {
  public:
    explicit LifeSigns(Link & link) : link_(link), thread_([this] { run(); }) {}
    ~LifeSigns() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    LifeSigns(const LifeSigns &)             = delete;
    LifeSigns & operator=(const LifeSigns &) = delete;

    void set_busy(bool busy) {
        std::lock_guard<std::mutex> lock(mutex_);
        busy_ = busy;
    }

  private:
    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!changed_.wait_for(lock, LIFE_EVERY, [this] { return over_; })) {
            if (busy_) {
                link_.show_life();
            }
        }
    }

    Link &                  link_;
    std::mutex              mutex_;
    std::condition_variable changed_;
    bool                    busy_ = false;
    bool                    over_ = false;
    std::thread             thread_;
};

class ServerEnd : public End {
  public:
    explicit ServerEnd(std::shared_ptr<Link> link) : link_(std::move(link)), signs_(*link_) {}

    bool receive(void * dst, size_t size) override {
        if (part_ == COMMAND) {
            signs_.set_busy(false);
        }
        const bool received = link_->receive(dst, size) && (part_ != SIZE || may_receive(dst));
        signs_.set_busy(true);
        part_ = part_ == BODY ? COMMAND : static_cast<Part>(part_ + 1);
        return received;
    }

    // An answer comes as its size and its body.
    bool send(const void * data, size_t size) override {
        if (size_is_next_) {
            size_is_next_ = false;
            return !link_->is_lost();
        }
        size_is_next_ = true;
        return link_->send_answer(size, data);
    }

  private:
    static bool may_receive(const void * size) {
        uint64_t n_request;
        std::memcpy(&n_request, size, sizeof(n_request));
        return pyg::may_receive(n_request);
    }

    std::shared_ptr<Link> link_;
    LifeSigns             signs_;
    Part                  part_         = COMMAND;
    bool                  size_is_next_ = true;
};

}  // namespace

struct socket_t::impl {
    std::unique_ptr<End> end;
};

socket_t::socket_t(std::unique_ptr<impl> p) : pimpl(std::move(p)) {}

socket_t::~socket_t() = default;

bool socket_t::send_data(const void * data, size_t size) { return pimpl->end->send(data, size); }

bool socket_t::recv_data(void * data, size_t size) { return pimpl->end->receive(data, size); }

bool socket_t::flush() { return true; }

// Upstream's ends agree on transports other than TCP by these: here there are none.
void socket_t::get_caps(uint8_t * local_caps) { std::memset(local_caps, 0, RPC_CONN_CAPS_SIZE); }

void socket_t::update_caps(const uint8_t *) {}

// `port` is the number of the link, the second half of Link::endpoint(). Only a link of this process can be had: a
// client that asks a server to connect to a third host gets nowhere.
socket_ptr socket_t::connect(const char *, int port) {
    std::shared_ptr<Link> link = Link::take(port);
    if (!link) {
        return nullptr;
    }
    auto p = std::make_unique<impl>();
    if (link->role() == Link::SERVER) {
        p->end = std::make_unique<ServerEnd>(std::move(link));
    } else {
        p->end = std::make_unique<ClientEnd>(std::move(link));
    }
    return socket_ptr(new socket_t(std::move(p)));
}

// Nobody listens but the supervisor in Python, which asks for the key.
socket_ptr socket_t::create_server(const char *, int) { return nullptr; }

socket_ptr socket_t::accept() { return nullptr; }

bool rpc_transport_init() { return true; }

void rpc_transport_shutdown() {}
