#include "remote/hosts.hpp"

#include "platform/platform.hpp"
#include "remote/protocol.hpp"

#include <algorithm>
#include <mutex>

namespace {

std::mutex                            g_mutex;
std::vector<std::weak_ptr<pyg::Host>> g_connected;

pyg::Hosts connected_hosts() {
    std::lock_guard<std::mutex> lock(g_mutex);
    pyg::Hosts                  hosts;
    for (const auto & weak : g_connected) {
        auto host = weak.lock();
        if (host && host->generation == pyg::fork_generation()) {
            hosts.push_back(std::move(host));
        }
    }
    g_connected.assign(hosts.begin(), hosts.end());
    return hosts;
}

}  // namespace

namespace pyg {

// No user is left, so there is nothing to wait for.
Host::~Host() {
    if (connection) {
        connection->disconnect("the connection was closed");
    }
}

std::shared_ptr<Host> connect_host(int socket, const std::string & name, double heartbeat_timeout_s) {
    const platform::SignalsBlocked signals_go_to_the_callers_threads;  // upstream starts a thread for the connection
    auto                           host = std::make_shared<Host>();
    host->connection                    = Connection::adopt(socket, name, Connection::CLIENT, heartbeat_timeout_s);
    const std::string endpoint          = host->connection->endpoint();
    host->client                        = connect_upstream(endpoint.c_str());
    host->devices                       = devices_at(endpoint.c_str());
    if (host->devices.empty()) {
        host->connection->disconnect("it exports no device");
    }
    require_hosts({host});
    std::lock_guard<std::mutex> lock(g_mutex);
    g_connected.push_back(host);
    return host;
}

std::vector<ggml_backend_dev_t> devices_of_hosts() {
    std::vector<ggml_backend_dev_t> devices;
    for (const auto & host : connected_hosts()) {
        devices.insert(devices.end(), host->devices.begin(), host->devices.end());
    }
    return devices;
}

Hosts hosts_of(const std::vector<ggml_backend_dev_t> & devices) {
    Hosts hosts;
    for (const auto & host : connected_hosts()) {
        if (std::find_first_of(devices.begin(), devices.end(), host->devices.begin(), host->devices.end()) !=
            devices.end()) {
            hosts.push_back(host);
        }
    }
    return hosts;
}

bool any_lost(const Hosts & hosts) {
    return std::any_of(hosts.begin(), hosts.end(), [](const auto & host) { return host->connection->is_lost(); });
}

void require_hosts(const Hosts & hosts) {
    for (const auto & host : hosts) {
        if (host->connection->is_lost()) {
            throw fail(PYG_ERR_HOST_LOST, "the host %s is lost: %s; load the model again when it is back",
                       host->connection->peer().c_str(), host->connection->disconnect_reason().c_str());
        }
    }
}

}  // namespace pyg
