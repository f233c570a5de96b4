// Memory and cores that the machine, the control groups above the process and its own limits leave it.
//
// `root` is put before every path that is read, so that a test can lay out its own machine in a folder. What cannot be
// read sets no limit.
#pragma once

#include "pyggml.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pyg {

// Bytes of main memory this process may still take: the least of the limits.
uint64_t memory_available(const std::string & root = "");

// What `ulimit -v` leaves, without reading a file if there is no such limit.
uint64_t address_space_left(const std::string & root = "");

pyg_memory_limits memory_limits(const std::string & root = "");

// The processors this process may run on; empty if the system does not say.
std::vector<int> allowed_processors();

// Physical cores among `processors`, limited by the control groups' quotas; at least 1.
int32_t cpu_count(const std::vector<int> & processors, const std::string & root = "");

pyg_cpu_limits cpu_limits(const std::vector<int> & processors, const std::string & root = "");

}  // namespace pyg
