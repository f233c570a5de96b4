// Other hosts that compute for this process.
//
// A lost host fails no call into the engine: its answers are made up (transport.cpp). So whoever has asked the engine
// for something that a host may have computed calls require_hosts() before it believes the result, or any other error.
#pragma once

#include "boundary/guard.hpp"
#include "ggml-backend.h"
#include "remote/connection.hpp"

#include <memory>
#include <string>
#include <vector>

namespace pyg {

// A connected host. Models with weights on it share it, and it is connected until the last of them is gone.
struct Host {
    std::shared_ptr<Connection>     connection;
    std::shared_ptr<void>           client;  // upstream's
    std::vector<ggml_backend_dev_t> devices;
    uint64_t                        generation = fork_generation();

    Host() = default;
    ~Host();
    Host(const Host &)             = delete;
    Host & operator=(const Host &) = delete;
};

using Hosts = std::vector<std::shared_ptr<Host>>;

// Connects upstream's client through an authenticated socket, which is taken over also on failure. PYG_ERR_HOST_LOST.
std::shared_ptr<Host> connect_host(int socket, const std::string & name, double heartbeat_timeout_s);

// The devices of all connected hosts, in the order in which they were connected.
std::vector<ggml_backend_dev_t> devices_of_hosts();

// The hosts to which any of these devices belong, for whoever uses the devices to keep.
Hosts hosts_of(const std::vector<ggml_backend_dev_t> & devices);

// PYG_ERR_HOST_LOST, naming the host, if one of them is lost.
void require_hosts(const Hosts & hosts);

}  // namespace pyg
