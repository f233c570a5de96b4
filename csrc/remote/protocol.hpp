// What upstream's RPC protocol means: the answers it expects, and the server's side of it.
#pragma once

#include "ggml-backend.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pyg {

class Connection;

// How many bytes upstream expects as the answer to a request; 0 if it expects none.
size_t response_size(uint8_t command, const void * request, size_t n_request);

// Stands in for the answer to a request that is not sent: an allocation that failed, tensors of zeros, no more devices.
void make_fallback_response(uint8_t command, void * response, size_t n_response);

// Whether the answer is made here in any case: a host must not be told to connect to another one, which would be
// without a key.
bool is_blocked(uint8_t command);

// Connects upstream's client with a link, for as long as the result lives: upstream itself forgets a connection as soon
// as nothing uses it, and a link can be had only once.
std::shared_ptr<void> connect_upstream(const char * endpoint);

// The devices of the host at the other end of a link, by the link's endpoint; empty if it has none or is lost. They
// exist until the process ends, as upstream remembers them.
std::vector<ggml_backend_dev_t> devices_at(const char * endpoint);

// Whether a server takes a request of this size, for which upstream makes room before it comes.
bool may_receive(uint64_t n_request);

// Computes for the peer until it hangs up. Once in a process. The peer may allocate `max_bytes` on each backend, and in
// main memory no more than `main_memory_available` says.
void serve(const std::shared_ptr<Connection> & connection, const std::vector<ggml_backend_t> & backends,
           uint64_t max_bytes, uint64_t (*main_memory_available)());

}  // namespace pyg
