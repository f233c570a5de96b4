// Upstream's RPC protocol: expected responses, and the server.
#pragma once

#include "ggml-backend.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pyg {

class Connection;

// Size of the response that upstream expects to a request; 0 for none.
size_t response_size(uint8_t command, const void * request, size_t n_request);

// Fill in a response to a request that is not sent: failed allocation, zero tensors, no more devices.
void make_fallback_response(uint8_t command, void * response, size_t n_response);

// Return true for commands that are never sent: a host must not connect to another host, which would not be
// authenticated.
bool is_blocked(uint8_t command);

// Connect upstream's client, which stays connected while the result lives: upstream drops unused connections, and a
// connection cannot be opened again.
std::shared_ptr<void> connect_upstream(const char * endpoint);

// Devices of the host at an endpoint; empty if it has none or is lost. They exist until the process ends, because
// upstream caches them.
std::vector<ggml_backend_dev_t> devices_at(const char * endpoint);

// Return true if the server accepts a request of this size, for which upstream allocates a buffer first.
bool may_receive(uint64_t n_request);

// Compute for the peer until it disconnects. Once per process. The peer may allocate `max_bytes` on each backend, and
// in main memory at most `main_memory_available()`.
void serve(const std::shared_ptr<Connection> & connection, const std::vector<ggml_backend_t> & backends,
           uint64_t max_bytes, uint64_t (*main_memory_available)());

}  // namespace pyg
