// Remote hosts: other machines whose devices compute for this process.
//
// Calls into the engine never fail when a host is lost: its responses are replaced by made-up ones (transport.cpp).
// After every call whose result may depend on a host, call require_hosts() before using the result or reporting another
// error.
#pragma once

#include "boundary/guard.hpp"
#include "ggml-backend.h"
#include "remote/connection.hpp"

#include <memory>
#include <string>
#include <vector>

namespace pyg {

// A connected host, shared by the models with weights on it. It stays connected until the last of them is freed.
struct Host : NonCopyable {
    std::shared_ptr<Connection>     connection;
    std::shared_ptr<void>           client;  // upstream's client
    std::vector<ggml_backend_dev_t> devices;
    uint64_t                        generation = fork_generation();

    Host() = default;
    ~Host();
};

using Hosts = std::vector<std::shared_ptr<Host>>;

// Connect upstream's client through an authenticated socket, whose ownership is taken even on failure.
// PYG_ERR_HOST_LOST.
std::shared_ptr<Host> connect_host(int socket, const std::string & name, double heartbeat_timeout_s);

// Devices of all connected hosts, in order of connection.
std::vector<ggml_backend_dev_t> devices_of_hosts();

// Hosts of these devices, to be kept alive by whatever uses the devices.
Hosts hosts_of(const std::vector<ggml_backend_dev_t> & devices);

bool any_lost(const Hosts & hosts);

// PYG_ERR_HOST_LOST, with the host's name, if one of them is lost.
void require_hosts(const Hosts & hosts);

}  // namespace pyg
